"""What a worker's process loads, and that every name a user may choose leads somewhere."""

import subprocess
import sys

import pytest

from mallorn.core import queues
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import REGISTRY, resolve
from mallorn.core.targets import NATIVE
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.costmodels.base import CostModel
from mallorn.searchers.base import Searcher
from mallorn.searchers.sampler import Sampler
from mallorn.services.planner.families.base import Families
from mallorn.services.planner.policy import Policy
from mallorn.workers.app import queues_to_consume
from mallorn.workers.features.feature_extractor import Extractor
from mallorn.workers.measure.measurer_interface import Measurer
from mallorn.workers.measure.stopping import StoppingRule

CLASSES = {
    "search": Searcher,
    "sampler": Sampler,
    "cost_model": CostModel,
    "stopping": StoppingRule,
    "measurer": Measurer,
    "policy": Policy,
    "families": Families,
    "features": Extractor,
}
# What a cost model reads, kinds of hardware, and what options of other names add.
NOT_CHOSEN = {"features", "lowered_features", "kind", "finish_step"}
NAMES = [(seam, name) for seam, names in REGISTRY.items() for name in names]


IMPORT_EACH = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
    if {"tvm", "tvm_ffi"} & sys.modules.keys():
        sys.exit(f"{module} loads TVM")
"""


def check_no_tvm(*modules: str) -> None:
    """Assert that a process which imports these modules loads no TVM."""
    command = [sys.executable, "-c", IMPORT_EACH, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_workers_own_process_loads_no_tvm() -> None:
    measurers = [place.partition(":")[0] for place in REGISTRY["measurer"].values()]
    check_no_tvm("mallorn.workers.celery_tasks", "mallorn.workers.finish.run", *measurers)


@pytest.mark.parametrize(("seam", "name"), NAMES)
def test_a_registered_name_is_what_its_seam_says(seam: str, name: str) -> None:
    check_class(seam, name)


def check_class(seam: str, name: str) -> None:
    """Assert that a name leads to a class of its seam, or to a function or recipe."""
    found = resolve(seam, name)
    if seam in CLASSES:
        assert issubclass(found, CLASSES[seam])
        assert not found.__abstractmethods__, "it leaves something of its contract undone"
    else:
        assert isinstance(found, StoredRecipe) or callable(found)


def test_every_seam_is_known_here() -> None:
    assert set(REGISTRY) == {*CLASSES, *NOT_CHOSEN, "recipe"}


def test_a_step_of_a_finish_has_the_name_of_a_switch() -> None:
    options = JobOptions().model_dump()
    assert [options[name] for name in REGISTRY["finish_step"]] == [False] * len(REGISTRY["finish_step"])


def test_a_job_that_chooses_nothing_gets_registered_names() -> None:
    options = JobOptions().model_dump()
    assert all(options[seam] in REGISTRY[seam] for seam in REGISTRY if seam not in NOT_CHOSEN)


def test_every_task_is_served_from_a_queue_that_somebody_listens_to() -> None:
    from mallorn.services.control.celery_tasks import app as control
    from mallorn.workers.celery_tasks import app as workers

    assert {*queues.QUEUES, queues.WORK} <= {*control.tasks, *workers.tasks}
    assert {queues.CONTROL, *queues_to_consume(queues.WORKER_QUEUES)} >= set(queues.QUEUES.values())


def test_messages_about_work_go_to_those_who_can_do_it() -> None:
    from mallorn.workers.host.code_digest import current_builder_name

    consumed = queues_to_consume(queues.WORKER_QUEUES)
    for capability in (queues.IMPORT, NATIVE, queues.capability(NATIVE, current_builder_name())):
        assert queues.route(queues.WORK, (capability,))["queue"] in consumed
    assert queues.route(queues.WORK, (queues.capability(NATIVE, "another"),))["queue"] not in consumed
    assert not any(name.startswith("work.native") for name in queues_to_consume([queues.IMPORT]))
