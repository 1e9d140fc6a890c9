"""Whole jobs from submit to done on virtual devices: simulated, then replayed from what that left."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from sqlalchemy import select

from mallorn import Client, Job
from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import VIRTUAL_DEVICES
from mallorn.core.settings import Settings
from mallorn.core.settings import settings as own_settings
from mallorn.core.targets import Target
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.manifest import read_manifest
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workers import Workers
from mallorn.db.tables import Context, Measurement
from mallorn.services.control.plan_target import plan_target
from mallorn.workers.measure.measurer_interface import Need
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.round.train_cost_model import train
from tests.fixtures.answers import mallorn
from tests.fixtures.coordinator import running
from tests.fixtures.onnx_network import saved
from tests.fixtures.work import finish, import_job, run

TARGET = '{"kind":"llvm","num-cores":2}'
TRIALS = 24
PLUGINS = ["tests.fixtures.pretenders:*"]
# Two runs of a job meet the same candidates.
OPTIONS: dict[str, Any] = {"round_size": 8, "families": "operator", "search": "evolutionary"}


class Nothing:
    """What nobody may touch."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        raise AssertionError(f"a job without a device used the {self._name}: {method}")


class Deviceless(Runtime):
    """A worker where neither candidates can be built nor a device reached, and no tracker answers."""

    @property
    def builders(self) -> Any:  # type: ignore[override]
        return Nothing("builders")

    @property
    def runner(self) -> Any:  # type: ignore[override]
        return Nothing("runner")


class House:
    """A coordinator over HTTP, and a control and a worker beside it in this process."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self.worker = Deviceless(settings)

    def done(self, model: Path, seed: int, **options: Any) -> Job:
        """A job at its end."""
        job = self.client.submit(model, TARGET, TRIALS, seed=seed, **OPTIONS | options)
        import_job(self.worker, job.id)
        while round_ids := self._planned(job):
            for round_id in round_ids:
                if (closed := run(self.worker, round_id)) is not None:
                    train(self.worker, closed.job_id, closed.task_id)
        finish(self.worker, job.id)
        job.refresh()
        return job

    def _planned(self, job: Job) -> list[int]:
        with self.worker.database.transaction() as session:
            Workers(session).record_seen(self.worker.name, "host", {"can_tune": True})
        plan_target(self.worker.database, job.id, "control")
        with self.worker.database.session() as session:
            return list(Rounds(session).queued(job.id))


@pytest.fixture(autouse=True)
def allowed_by_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_settings(), "plugins", PLUGINS)


@pytest.fixture(scope="module")
def house(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    shutil.copyfile(sqlite_template, folder / "mallorn.db")
    known: dict[str, Any] = {"plugins": PLUGINS, "recordings": "*"}
    settings = Settings(data_dir=folder, redis_url="memory://", tracker="127.0.0.1:1", **known)
    with running(settings) as coordinator, Client(coordinator.url) as client:
        found = House(client, settings)
        yield found
        found.worker.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense layer and a softmax."""
    weight = np.random.default_rng(0).standard_normal((32, 64)).astype("float32")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
    path = tmp_path_factory.mktemp("model") / "dense.onnx"
    return Path(saved(path, nodes, {"x": [16, 32]}, {"y": [16, 64]}, w=weight))


@pytest.fixture(scope="module")
def simulated(house: House, model: Path) -> Job:
    return house.done(model, 3, measurer="simulated", simulated={"seed": 8, "failure_rate": 0.2})


@pytest.fixture(scope="module")
def recording(house: House, simulated: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `mallorn record` makes of the simulated job."""
    path = tmp_path_factory.mktemp("recording") / "recording.parquet"
    result = mallorn("record", "--data", house.settings.data_dir, "--candidates", 2, "--out", path)
    assert result.exit_code == 0, result.output
    return path


def outcomes(job: Job) -> list[tuple[object, ...]]:
    """What became of every trial, in order; a softmax has one candidate alone, and is not recorded."""
    rows = [row for row in job.records() if row.kind == "trial" and row.decisions]
    return [(row.workload, row.sketch, row.decisions, row.outcome, row.latency_us) for row in rows]


def report_of(job: Job) -> FinishReport:
    assert job.status.report is not None, job.status.explanation
    return job.status.report


def assert_done_without_a_device(house: House, job: Job, measurer: str) -> None:
    report = report_of(job)
    assert job.status.state == "done"
    assert report.measured_by == measurer
    assert [step.step for step in report.skipped_steps] == [Need.CHECK, Need.TIME]
    assert report.latency_us == {}
    assert str(job.verdict).startswith(f"measured by {measurer}, on no device")
    assert f'"device":"{measurer}"' in job.status.target
    assert report.trials == TRIALS
    assert list(house.client.schedules(target=job.status.target)) == [], "nothing unchecked is a schedule"


def test_a_simulated_job_runs_from_submit_to_done(house: House, simulated: Job, tmp_path: Path) -> None:
    assert_done_without_a_device(house, simulated, "simulated")
    report = report_of(simulated)
    assert (report.schedule_count, report.unscheduled_workloads) == (report.workload_count, [])
    assert report.outcomes["run_error"] > 0
    manifest = read_manifest(simulated.schedules(tmp_path / "out") / "manifest.json")
    assert manifest.measured_by == "simulated"
    assert {workload.max_error for workload in manifest.workloads} == {None}
    assert manifest.measured_on.host_class == "simulated"


def test_the_same_job_on_its_recording_finds_the_same(
    house: House, model: Path, simulated: Job, recording: Path
) -> None:
    replayed = house.done(model, 3, measurer="replay", recording=str(recording))
    assert_done_without_a_device(house, replayed, "replay")
    assert outcomes(replayed) == outcomes(simulated)
    (task_us,) = report_of(replayed).tasks_us.items()
    assert task_us in report_of(simulated).tasks_us.items()


def test_a_task_that_was_never_recorded_is_told_and_left_without_a_schedule(
    house: House, model: Path, recording: Path
) -> None:
    job = house.done(model, 3, measurer="replay", recording=str(recording), search="random")
    (left,) = report_of(job).tasks_without_winner
    (warning,) = job.status.warnings
    assert warning.message == f"1 of 2 tasks are not in the recording: {left}"


def test_what_the_recording_lacks_is_counted_and_ends_no_job(
    house: House, model: Path, recording: Path
) -> None:
    other = house.done(model, 4, measurer="replay", recording=str(recording), search="random")
    assert_done_without_a_device(house, other, "replay")
    assert report_of(other).outcomes["not_recorded"] > 0


def test_a_recording_of_another_model_fails_the_job_with_the_next_step(house: House, model: Path) -> None:
    held = Path("benchmarks/data/spaces.parquet").absolute()
    job = house.done(model, 0, measurer="replay", recording=str(held))
    assert job.status.state == "failed"
    assert "was not recorded for" in job.status.explanation
    assert "--target '" in job.status.hint


@pytest.mark.parametrize("name", ["Derived", "Alias"])
def test_what_simulates_by_another_name_is_simulated_all_the_same(
    house: House, model: Path, name: str
) -> None:
    given = {"seed": 8, "failure_rate": 0.2}
    job = house.done(model, 3, measurer=f"tests.fixtures.pretenders:{name}", simulated=given)
    assert_done_without_a_device(house, job, "simulated")
    with house.worker.database.session() as session:
        contexts = session.scalars(select(Context.target_id).join(Measurement))
        assert {
            Target(Targets(session).get(each).text).virtual_device for each in contexts
        } <= VIRTUAL_DEVICES


def test_one_of_ours_has_its_name_alone(house: House, model: Path) -> None:
    with pytest.raises(InvalidRequest, match="has a short name"):
        house.client.submit(
            model, TARGET, TRIALS, measurer="mallorn_research.simulated_device.measurer:SimulatedMeasurer"
        )
