"""A job without a search in a browser: what answered for each task, how sure it is, no button for trials."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.session import Database
from mallorn.db.tables import Job
from tests.browser.conftest import Open
from tests.fixtures.coordinator import OwnedRows

Serve = Callable[..., str]
BECAUSE = "carried from the same loops in sizes 1.2 times apart"
NEAR: dict[str, Any] = {"source": "near", "basis": BECAUSE, "confidence": "likely"}
SAME: dict[str, Any] = {
    "source": "same",
    "basis": "the fastest that was measured here",
    "confidence": "measured",
    "expected_us": 12.0,
}


@pytest.fixture
def answered(quiet_database: Database) -> OwnedRows:
    """A zero-shot job that is done."""
    rows = OwnedRows(quiet_database)

    def end(session: Session) -> None:
        options = JobOptions(mode="zero-shot").model_dump(mode="json")
        session.execute(update(Job).where(Job.id == rows.job_id).values(options=options, trials=0))
        names = [task.name for task in Tasks(session).list(rows.job_id)]
        answers = dict(zip(names, (NEAR, SAME), strict=True))
        Jobs(session).store_report_columns(
            rows.job_id, report={"unmeasured_schedules": answers, "schedule_count": 2, "workload_count": 2}
        )
        Jobs(session).move_to_state(rows.job_id, [JobState.TUNING], JobState.DONE)

    rows.write(end)
    return rows


def test_the_table_of_tasks_says_what_answered_and_the_verdict_what_nobody_did(
    serve: Serve, open_page: Open, answered: OwnedRows
) -> None:
    page = open_page(f"{serve()}#/jobs/{answered.job_id}")
    tasks = page.get_by_role("group", name="Tasks")
    tasks.get_by_text("near, likely").wait_for()
    tasks.get_by_text("same, measured").wait_for()
    page.get_by_text("neither built nor checked").first.wait_for()
    page.get_by_text("1 on measurements of the same workload").wait_for()
    assert page.get_by_role("button", name="Add trials").count() == 0


def test_a_task_says_why_and_that_it_has_no_verified_schedule(
    serve: Serve, open_page: Open, answered: OwnedRows
) -> None:
    page = open_page(f"{serve()}#/jobs/{answered.job_id}/tasks/0")
    page.get_by_text(BECAUSE).wait_for()
    page.get_by_text("This job is zero-shot").wait_for()
