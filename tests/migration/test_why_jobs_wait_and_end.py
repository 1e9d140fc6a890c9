"""An upgrade moves the text of a job's reason to the field that the job's state names."""

from dataclasses import asdict

import pytest
from sqlalchemy import MetaData, insert

from mallorn.db.migrate import upgrade
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.session import Database
from tests.fixtures.rows import new_job

WAITS = "waits for a device for llvm"
CASES = {
    ("tuning", ""): ("", "", ""),
    ("tuning", f"{WAITS}\nmallorn device   (there)"): (WAITS, "", "mallorn device   (there)"),
    ("paused", "paused by its owner"): ("paused by its owner", "", ""),
    ("done", "the budget of 8 trials is spent"): ("", "the budget of 8 trials is spent", ""),
    ("failed", "no room\ndf -h\nand more"): ("", "no room", "df -h\nand more"),
}


@pytest.mark.parametrize(("state", "reason"), CASES)
def test_a_reason_goes_to_the_field_of_the_jobs_state(
    empty_database_url: str, state: str, reason: str
) -> None:
    upgrade(empty_database_url, "0.2.0.23")
    database = Database(empty_database_url)
    old = MetaData()
    old.reflect(database.engine, only=["targets", "jobs"])
    row = asdict(new_job()) | {"id": "old", "state": state, "reason": reason, "event_count": 0}
    with database.transaction() as session:
        session.execute(insert(old.tables["targets"]).values(id=1, key="t", text="{}"))
        session.execute(insert(old.tables["jobs"]).values(row | {"created_at": 1.0}))
    upgrade(empty_database_url)
    with database.session() as session:
        job = Jobs(session).get("old", None)
        found = job.waiting_because, job.ended_because, job.hint
        assert (found, job.step) == (CASES[state, reason], None)
    database.dispose()
