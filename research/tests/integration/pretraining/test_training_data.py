"""A database, an export of it and a recording teach the same."""

from pathlib import Path

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.outcomes import Outcome
from mallorn.costmodels.views import VIEWS
from mallorn.db.dataset.snapshots import take_snapshot
from mallorn.db.repositories.snapshots import Selection
from mallorn.db.session import Database
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler, Candidates
from mallorn.workers.round.feature_lookup import FeatureLookup
from mallorn_research.pretraining.read_measurements import read_measurements, read_training_data
from mallorn_research.pretraining.training_data import Lowering, TaskData, TrainingData, rows_for
from mallorn_research.replay.recorded_tasks_from_dataset import recorded_tasks
from mallorn_research.replay.recording_file import write_tasks
from tests.fixtures.database import BOTH
from tests.fixtures.filled_dataset import Filled
from tests.fixtures.inside import Inside

OK, ERROR, TIMEOUT = Outcome.OK, Outcome.BUILD_ERROR, Outcome.BUILD_TIMEOUT
ALL = Selection()


def taught(data: TrainingData) -> dict[str, list[tuple[Outcome, float | None]]]:
    return {
        task.workload: [(trial.outcome, trial.latency_us) for trial in task.trials] for task in data.tasks
    }


def values(task: TaskData) -> tuple[object, ...]:
    return (
        task.op,
        task.target,
        task.descriptors,
        task.sketches,
        list(task.candidates),
        task.host,
    )


def test_a_database_teaches_its_trials_and_not_the_repeats_of_the_finish(filled: Filled) -> None:
    filled.write(lambda session: filled.finish(session, [filled.ok(9, 2.0)]))
    training_data = read_measurements(filled.database, None, ALL)
    assert taught(training_data) == {
        "w0": [(OK, 5.0), (ERROR, None), (OK, 3.0)],
        "w1": [(TIMEOUT, None), (OK, 7.0)],
    }
    assert training_data.tasks[0].descriptors[1:] == pytest.approx([6.02, 6.02], abs=0.01)
    assert [task.host for task in training_data.tasks] == ["host", "host"]
    assert training_data.snapshot.startswith("rows-")
    assert training_data.upto == 6


def test_a_snapshot_teaches_what_it_froze(filled: Filled) -> None:
    take_snapshot(filled.database, "before", ALL)
    filled.closed_round(filled.ok(0, 1.0), workload="w1")
    assert read_measurements(filled.database, "before", ALL).rows == 5
    assert read_measurements(filled.database, None, ALL).rows == 6
    with pytest.raises(NotFound, match="no snapshot after"):
        read_measurements(filled.database, "after", ALL)


def test_networks_are_known_with_how_often_they_call_a_workload(filled: Filled) -> None:
    assert read_measurements(filled.database, None, ALL).networks == {"mlp": {"w0": 1, "w1": 2}}


def test_an_export_teaches_what_its_database_does(filled: Filled, tmp_path: Path) -> None:
    filled.exported(tmp_path / "out")
    here, there = read_measurements(filled.database, None, ALL), read_training_data(tmp_path / "out")
    assert taught(there) == taught(here)
    assert [values(task) for task in there.tasks] == [values(task) for task in here.tasks]
    assert there.snapshot == here.snapshot
    assert set(next(iter(there.networks.values()))) == {"w0", "w1"}
    assert taught(read_training_data(tmp_path / "out" / "measurements.parquet")) == taught(here)


def test_a_recording_teaches_what_its_database_does(filled: Filled, tmp_path: Path) -> None:
    write_tasks(tmp_path / "spaces.parquet", recorded_tasks(filled.database, 1), {})
    there = read_training_data(tmp_path / "spaces.parquet")
    assert taught(there) == taught(read_measurements(filled.database, None, ALL))
    assert [task.host for task in there.tasks] == ["host", "host"]
    assert there.snapshot.startswith("file-")


@BOTH
def test_a_limit_bounds_what_is_kept_and_not_what_is_best(filled: Filled) -> None:
    filled.closed_round(*[filled.ok(at, 9.0) for at in range(200)])
    training_data = read_measurements(filled.database, None, ALL, limit=20)
    assert 10 < training_data.rows < 40
    assert min(us for _, us in taught(training_data)["w0"] if us) == 3.0


class FirstDecisions(Inside, CandidateCompiler):
    """Answers with the first decision in every column, and cannot lower some."""

    asked = 0

    def on_compute_lowered_features(
        self, view: str, tir: str, target: str, candidates: Candidates
    ) -> list[bytes | None]:
        self.asked += len(candidates)
        width = VIEWS[view].width
        rows = [np.full(width, decisions[0], dtype="<f4").tobytes() for _, decisions in candidates]
        return [None if row[:4] == bytes(4) else row for row in rows]


@BOTH
def test_what_needs_a_compiler_is_asked_once_and_what_cannot_be_lowered_is_left_out(filled: Filled) -> None:
    compiler = FirstDecisions()
    lowering = Lowering(FeatureLookup(filled.database, compiler), most_new=100)
    tasks = read_measurements(filled.database, None, ALL).tasks
    found = [rows_for(tasks, "code", lowering) for _ in range(2)]
    assert compiler.asked == 5
    for rows in found:
        assert rows.features[:, 0].tolist() == [1.0, 2.0, 1.0], "slot 0 of both tasks cannot be lowered"
        assert rows.latencies_us.tolist() == [float("inf"), 3.0, 7.0]


def test_an_empty_database_teaches_nothing(database: Database) -> None:
    assert read_measurements(database, None, ALL).rows == 0


def test_what_is_not_there_or_no_dataset_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"there is no .*gone\.parquet"):
        read_training_data(tmp_path / "gone.parquet")
    (tmp_path / "text.parquet").write_text("no Parquet at all")
    with pytest.raises(InvalidRequest, match="is not a Parquet file"):
        read_training_data(tmp_path / "text.parquet")
