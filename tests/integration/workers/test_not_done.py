"""Whatever fails around the whole model, verified schedules are handed out, and the report says the rest."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mallorn.core.errors import StorageFull, Unavailable
from mallorn.core.states import JobState
from mallorn.core.values.graph_report import TensorSpec
from mallorn.db.repositories.jobs import Jobs
from mallorn.workers.interfaces.whole_model_engine import LoadedEngine, NodeDifference
from mallorn.workers.subprocesses.errors import ChildFailed, ChildTimeout
from tests.fixtures.finishing import COMPILED, CRASHED
from tests.fixtures.timed_models import finish_anyway, steps
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish


def disagree(expected_npz, **_params):
    """TVM and onnxruntime understand the model in different ways."""
    return 0.5 if "onnxruntime" in expected_npz else 0.0


class Fault(NamedTuple):
    """What processes and engines answer, and what the report says then."""

    steps: tuple[str, ...]  # that were not done
    timed: str  # the engines whose times are told
    graphs: Mapping[str, Any] = {}
    engines: Mapping[tuple[str, str], Any] = {}
    options: Mapping[str, Any] = {}
    words: tuple[str, ...] = ()  # of the first step
    told: Mapping[str, Any] = {}
    not_told: tuple[str, ...] = ()


NOBODY_WAITS = AssertionError("nobody waits for this")
NO_OPERATOR = ChildFailed("NotImplemented", "no such operator")
LATE = ChildTimeout("it took longer than 600 s")
BOTH_AGREE = {"error_vs_untuned": 1e-7, "error_vs_onnxruntime": 1e-7}
NO_TRIALS = {"trials": 0}
FAULTS = {
    "nothing fails": Fault((), "untuned tuned onnxruntime", told=BOTH_AGREE),
    "the process that compiles the model is killed": Fault(
        ("compile the tuned model",),
        "",
        graphs={"compile_model": CRASHED},
        words=("SIGKILL", "memory"),
        told={"schedule_count": 2, "workload_count": 2},
        not_told=("latency_us",),
    ),
    "the untuned model does not compile": Fault(
        ("compile the untuned model",),
        "tuned onnxruntime",
        graphs={"compile_default": CRASHED},
        words=("memory",),
    ),
    "no trials: onnxruntime confirms the numbers, and nobody compiles the untuned model": Fault(
        (),
        "tuned onnxruntime",
        graphs={"compile_default": NOBODY_WAITS},
        options=NO_TRIALS,
        told={"error_vs_onnxruntime": 1e-7},
        not_told=("error_vs_untuned",),
    ),
    "no trials: onnxruntime fails, and the untuned model is asked": Fault(
        ("load onnxruntime",),
        "untuned tuned",
        engines={("onnxruntime", "load_onnxruntime"): NO_OPERATOR},
        options=NO_TRIALS,
        told={"error_vs_untuned": 1e-7},
    ),
    "no trials: onnxruntime says something else, and the untuned model is asked": Fault(
        ("agree with onnxruntime",),
        "untuned tuned onnxruntime",
        graphs={"compare_models": disagree},
        options=NO_TRIALS,
    ),
    "the model is large for this host: no untuned one is made": Fault(
        (),
        "tuned onnxruntime",
        graphs={"compile_default": NOBODY_WAITS, "compile_model": replace(COMPILED, bytes=1 << 60)},
    ),
    "there are no inputs": Fault(
        ("make inputs for the model",),
        "",
        graphs={"make_inputs": ChildFailed("ValueError", "no such type")},
        not_told=("latency_us",),
    ),
    "onnxruntime is not installed": Fault(
        ("load onnxruntime",),
        "untuned tuned",
        engines={
            ("onnxruntime", "load_onnxruntime"): Unavailable(
                "it is not installed", hint="pip install onnxruntime"
            )
        },
    ),
    "onnxruntime has no such operator": Fault(
        ("load onnxruntime",),
        "untuned tuned",
        engines={("onnxruntime", "load_onnxruntime"): NO_OPERATOR},
    ),
    "onnxruntime never answers": Fault(
        ("run onnxruntime",), "untuned tuned", engines={("onnxruntime", "save_outputs"): LATE}
    ),
    "onnxruntime is never timed": Fault(
        ("time onnxruntime",), "untuned tuned", engines={("onnxruntime", "time_bursts"): LATE}
    ),
    "the tuned model crashes": Fault(
        ("run the tuned model",), "untuned onnxruntime", engines={("tuned", "save_outputs"): CRASHED}
    ),
    "the tuned model computes something else": Fault(
        ("check the tuned model",),
        "untuned onnxruntime",
        graphs={"compare_models": 0.25},
        words=("relative error 2.5e-01, allowed 1e-04",),
        told={"error_vs_untuned": 0.25},
    ),
    "an error without bounds, which JSON cannot say": Fault(
        ("check the tuned model",),
        "untuned onnxruntime",
        graphs={"compare_models": float("inf")},
        told={"error_vs_untuned": None},
    ),
    "of a quantised file onnxruntime tells the truth, and how far it is off itself": Fault(
        ("check the tuned model",),
        "untuned onnxruntime",
        graphs={"compare_models": disagree},
        engines={("onnxruntime", "load_onnxruntime"): LoadedEngine("onnxruntime", "1", 2, own_error=0.01)},
        words=("onnxruntime: relative error 5.0e-01",),
    ),
    "TVM and onnxruntime understand the model in different ways": Fault(
        ("agree with onnxruntime",), "untuned tuned onnxruntime", graphs={"compare_models": disagree}
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_fails_is_told_and_whatever_else_there_is_is_timed(workshop, answers, fault):
    workshop.graph_answers |= fault.graphs
    answers.update(fault.engines)
    told = finish_anyway(workshop, **fault.options)
    assert tuple(steps(told)) == fault.steps
    assert set(told.get("latency_us", {})) == set(fault.timed.split())
    assert fault.told.items() <= told.items()
    assert not told.keys() & set(fault.not_told)
    text = "".join(entry["reason"] + entry["hint"] for entry in told["skipped_steps"][:1])
    assert all(words in text for words in fault.words)


def test_a_compilation_whose_process_died_is_tried_once_more(workshop, answers):
    deaths = iter([CRASHED, COMPILED])

    def compile_model(**_params):
        if isinstance(end := next(deaths), Exception):
            raise end
        return end

    workshop.graph_answers["compile_model"] = compile_model
    assert finish_anyway(workshop)["skipped_steps"] == []


def test_a_full_disk_still_makes_the_finish_wait(workshop, answers):
    workshop.graph_answers["compile_default"] = StorageFull()
    job = tuned(workshop)
    finish(workshop, job)
    assert workshop.state(job) == JobState.FINISHING
    assert "disk" in workshop.explanation(job)


WRONG = NodeDifference("Resize_12", "Resize", 5.8e-3, 1e-4)
ROUNDED = NodeDifference("Conv_3", "Conv", 5.8e-3, 1e-4, float64_error=1e-6, onnxruntime_float64_error=5.8e-3)


def find_wrong_node(case_npz, **_params):
    Path(case_npz).write_bytes(b"the node and its inputs")
    return WRONG


MAGNIFIED = NodeDifference("", "", 0.5, 1e-4, own_change=0.3)


@pytest.mark.parametrize("options", [{}, NO_TRIALS], ids=["trials", "no trials"])
def test_a_wrong_import_fails_the_job_and_is_told_first(workshop, answers, options):
    workshop.graph_answers["compare_models"] = disagree
    answers["bisection", "bisect_import"] = find_wrong_node
    job = tuned(workshop, **options)
    finish(workshop, job)
    stored = workshop.read(lambda session: Jobs(session).get(job, None))
    assert stored.state == JobState.FAILED
    words = "the import of node 'Resize_12' (Resize) computes something else than onnxruntime"
    assert stored.ended_because.startswith(words)
    case = Path(stored.hint.rpartition(" ")[2])
    assert case.read_bytes() == b"the node and its inputs"
    assert stored.report is None


def test_where_onnxruntime_is_off_the_result_counts(workshop, answers):
    workshop.graph_answers["compare_models"] = disagree
    answers["bisection", "bisect_import"] = ROUNDED
    told = finish_anyway(workshop)
    assert steps(told) == ["agree with onnxruntime"]
    assert "onnxruntime rounds node 'Conv_3' (Conv)" in told["skipped_steps"][0]["reason"]
    assert set(told["latency_us"]) == {"untuned", "tuned", "onnxruntime"}


def only_tuned_differs(outputs_npz, expected_npz, **_params):
    names = {Path(path).name.partition("-")[0] for path in (outputs_npz, expected_npz)}
    return 0.5 if "tuned" in names else 0.0


@pytest.mark.parametrize(
    ("found", "step", "timed"),
    [
        (find_wrong_node, "check the tuned model", {"untuned", "onnxruntime"}),
        (None, "check the tuned model", {"untuned", "onnxruntime"}),
        (MAGNIFIED, "agree with onnxruntime", {"untuned", "tuned", "onnxruntime"}),
    ],
    ids=["a node alone", "nothing", "rounding"],
)
def test_an_import_of_a_quantised_file_that_agrees_without_schedules_is_not_wrong(
    workshop, answers, found, step, timed
):
    workshop.graph_answers["compare_models"] = only_tuned_differs
    answers["onnxruntime", "load_onnxruntime"] = LoadedEngine("onnxruntime", "1", 2, own_error=0.01)
    answers["bisection", "bisect_import"] = found
    told = finish_anyway(workshop)
    assert steps(told) == [step]
    assert set(told["latency_us"]) == timed


def test_an_output_that_does_not_vary_is_told_by_its_name(workshop, answers):
    spec = TensorSpec(name="mask", dtype="float32", shape=[1])
    workshop.graph_answers |= {
        "find_constant_outputs": [0],
        "compile_model": replace(COMPILED, outputs=[spec]),
    }
    told = finish_anyway(workshop)
    assert steps(told) == ["check the output 'mask'"]
    assert "--inputs samples.npz" in told["skipped_steps"][0]["hint"]
