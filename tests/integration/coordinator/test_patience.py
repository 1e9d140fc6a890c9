"""Who asks for what takes long is answered late, and not told that the database is silent."""

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from mallorn.core.values.dataset import DatasetStats
from mallorn.core.values.fleet import Withdrawn
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.repositories.withdraw_measurements import Withdrawals
from mallorn.services.coordinator.web import app_parts
from tests.fixtures.coordinator import Start

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("database_url", ["postgres"], indirect=True),
]
NOTHING = Withdrawn(measurements=0, schedules=0, cost_models=0, jobs=[])
EMPTY = DatasetStats(
    measurements=0,
    imported_measurements=0,
    workloads=0,
    targets=[],
    operators=[],
    models=[],
    outcomes=[],
    days=[],
    foreign_records=[],
)


def takes_long(session: Session) -> None:
    """Longer than other routes have for a statement."""
    session.execute(text("SELECT pg_sleep(0.5)"))


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_device_is_withdrawn_however_long_it_takes(
    start: Start, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    monkeypatch.setattr(app_parts, "ANSWER_SEC", 0.2)
    for name in ("withdraw", "count"):
        monkeypatch.setattr(Withdrawals, name, lambda found, *_: takes_long(found.session) or NOTHING)
    answer = start().http.post("/devices/liar/withdraw", json={"dry_run": dry_run})
    assert answer.status_code == 200, answer.text


def test_statistics_are_told_however_long_it_takes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_parts, "ANSWER_SEC", 0.2)
    monkeypatch.setattr(Statistics, "of", lambda found, _owner: takes_long(found.session) or EMPTY)
    answer = start().http.get("/dataset/stats")
    assert answer.status_code == 200, answer.text
