"""The dataset in numbers: what was measured, by whom it may be seen, and how it grew."""

from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.orm import Session

from mallorn.core.values.dataset import DatasetStats
from mallorn.db.dataset.import_dataset import import_dataset
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.session import Database
from mallorn.db.tables import Measurement
from tests.fixtures.coordinator import Coordinator
from tests.fixtures.database import BOTH
from tests.fixtures.filled_dataset import Filled


def counted(database: Database, owner: str | None = None) -> DatasetStats:
    with database.session() as session:
        return Statistics(session).of(owner)


def test_measurements_are_counted_by_all_that_one_asks_for(filled: Filled) -> None:
    found = counted(filled.database)
    assert (found.measurements, found.imported_measurements, found.workloads) == (5, 0, 2)
    assert [(each.name, each.count) for each in found.operators] == [("matmul", 5)]
    assert [(each.name, each.count) for each in found.models] == [("mlp", 5)]
    assert [(each.name, each.count) for each in found.targets] == [('{"kind":"llvm","num-cores":2}', 5)]
    outcomes = [(each.name, each.count) for each in found.outcomes]
    assert outcomes == [("ok", 3), ("build_error", 1), ("build_timeout", 1)]


def test_growth_is_told_day_by_day(filled: Filled) -> None:
    last_second = datetime(2026, 11, 19, 23, 59, 59, 900_000, UTC).timestamp()
    with filled.database.transaction() as session:
        for number, date in ((1, last_second), (2, last_second), (3, last_second + 0.1)):
            session.get_one(Measurement, number).created_at = date
        for number in (4, 5):
            session.get_one(Measurement, number).created_at = last_second + 86400
    days = [(day.day.isoformat(), day.count, day.total) for day in counted(filled.database).days]
    assert days == [("2026-11-19", 2, 2), ("2026-11-20", 3, 5)]


def test_an_owner_counts_what_their_own_jobs_measured(filled: Filled) -> None:
    assert counted(filled.database, "ada").measurements == 5
    nothing = counted(filled.database, "bob")
    assert (nothing.measurements, nothing.days, nothing.models) == (0, [], [])


def test_imported_rows_belong_to_no_owner(filled: Filled, elsewhere: Database, tmp_path: Path) -> None:
    filled.exported(tmp_path / "out")
    import_dataset(elsewhere, tmp_path / "out")
    found = counted(elsewhere)
    assert (found.measurements, found.imported_measurements, found.models) == (5, 5, [])
    assert counted(elsewhere, "ada").measurements == 0


@BOTH
def test_the_route_answers_to_the_owner(coordinator: Coordinator) -> None:
    filled = Filled(coordinator.database)
    body = coordinator.http.get("/dataset/stats").json()
    assert (body["measurements"], body["days"], body["foreign_records"]) == (0, [], [])
    filled.write(lambda session: _give(session, filled.job_id))
    body = coordinator.http.get("/dataset/stats").json()
    assert body["measurements"] == 5
    assert body["outcomes"][0] == {"name": "ok", "count": 3}
    assert body["days"][-1]["total"] == 5


def _give(session: Session, job_id: str) -> None:
    Jobs(session).get(job_id, None).owner = "local"
