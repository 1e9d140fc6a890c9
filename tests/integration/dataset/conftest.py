"""A dataset with rows of every sort, and an empty one to bring them into."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState
from mallorn.core.values.candidate import Choice, ChoiceKind, Sketch
from mallorn.db.dataset.export import export
from mallorn.db.dataset.take_snapshots import take_snapshot
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Measurements, NewMeasurement
from mallorn.db.repositories.sketches import NewSketch, Sketches
from mallorn.db.repositories.snapshots import Selection
from mallorn.db.session import Database
from mallorn.db.tables import Measurement
from tests.fixtures.rows import Rows

TILED = Sketch("tiled", "[tiled]", (Choice(ChoiceKind.TILE, 2, 4, 4, suggested=(2, 2)),), 1)


class Filled(Rows):
    """A job with measurements that came out well and badly, on the way and at the finish."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.closed_round(self.ok(0, 5.0, predicted=0.5), self.failed(1), self.ok(2, 3.0))
        lost = self.failed(0, Outcome.BUILD_TIMEOUT, context_id=None)
        self.closed_round(lost, self.ok(1, 7.0), workload="w1")

    def _fill(self, session: Session, workloads: tuple[str, ...], owner: str) -> None:
        super()._fill(session, workloads, owner)
        tiled = NewSketch(TILED, "tvm/1", "0.27.0")
        self.sketch_id = Sketches(session).ensure_many([tiled])["tiled"]

    def finish(self, session: Session, batch: list[NewMeasurement]) -> None:
        """Repeats of the best, at the end of the job."""
        Jobs(session).move_to_state(self.job_id, [JobState.TUNING], JobState.FINISHING)
        hold = Jobs(session).claim_stage(self.job_id, JobState.FINISHING, "w", 60)
        assert hold is not None
        program = self.workloads["w0"], self.target_id
        Measurements(session).add_finish(self.job_id, hold.token, *program, batch)

    def exported(self, directory: Path, **selected: Any) -> dict[str, Any]:
        """Freeze and write."""
        return export(self.database, take_snapshot(self.database, None, Selection(**selected)), directory)


def stored(database: Database) -> list[Measurement]:
    """All measurements, oldest first."""
    with database.session() as session:
        return list(session.query(Measurement).order_by(Measurement.id))


@pytest.fixture
def filled(database: Database) -> Filled:
    return Filled(database)


@pytest.fixture
def enough(filled: Filled) -> Filled:
    """Twenty rows more of each of two workloads, which are enough to learn from."""
    for workload in ("w0", "w1"):
        filled.closed_round(*[filled.ok(slot, 2.0 + slot) for slot in range(20)], workload=workload)
    return filled


@pytest.fixture
def elsewhere(sqlite_template: Path, tmp_path: Path) -> Iterator[Database]:
    """Another dataset, empty."""
    file = tmp_path / "elsewhere.db"
    shutil.copyfile(sqlite_template, file)
    opened = Database(f"sqlite:///{file}")
    yield opened
    opened.dispose()
