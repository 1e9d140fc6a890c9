"""One task in a browser: what became of its schedule, and how two of them differ."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mallorn.core.artifact_uris import scripts_uri
from mallorn.core.states import JobState
from mallorn.db.session import Database
from mallorn.db.tables import Job
from tests.browser.conftest import Open
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.schedules import promote

Serve = Callable[..., str]


def keep_scripts(folder: Path, trace: str, scheduled: str, steps: str) -> None:
    """What the finish of the job left in the artifact store."""
    file = Path(scripts_uri(str(folder / "artifacts"), "local", "w0", trace))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"original": "for i\n  one", "scheduled": scheduled, "trace": steps}))


@pytest.fixture
def schedules(rows: OwnedRows, tmp_path: Path) -> tuple[int, int]:
    """Two verified schedules of w0 that differ in one line, the second one faster."""
    keep_scripts(tmp_path, "[0]", "for i\n  tile 2", "sch.tile(decision=[2])")
    keep_scripts(tmp_path, "[1]", "for i\n  tile 4", "sch.tile(decision=[4])")
    return promote(rows, "w0", 20.0, "[0]"), promote(rows, "w0", 10.0, "[1]")


def test_before_the_finish_the_page_says_when_a_schedule_comes(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = open_page(f"{serve()}#/jobs/{rows.job_id}/tasks/0")
    page.get_by_text("No schedule yet").wait_for()


def test_a_job_that_is_done_without_a_schedule_says_why(
    serve: Serve, open_page: Open, rows: OwnedRows, quiet_database: Database
) -> None:
    with quiet_database.transaction() as session:
        job = session.get_one(Job, rows.job_id)
        job.state, job.finished_at = JobState.DONE, job.created_at + 60.0
    page = open_page(f"{serve()}#/jobs/{rows.job_id}/tasks/0")
    page.get_by_text("No schedule", exact=True).wait_for()
    assert page.get_by_text("when the job finished, so nothing was kept").is_visible()


def test_the_best_schedule_stands_beside_the_unscheduled_program(
    serve: Serve, open_page: Open, rows: OwnedRows, schedules: tuple[int, int]
) -> None:
    page = open_page(f"{serve()}#/jobs/{rows.job_id}/tasks/0")
    code = page.get_by_role("group", name="Unscheduled beside")
    code.wait_for()
    assert code.locator(".gone").all_inner_texts() == ["  one"]
    assert code.locator(".came").all_inner_texts() == ["  tile 4"]
    assert page.get_by_text("1 line of 2 differs").is_visible()


def test_the_trace_shows_what_was_decided(
    serve: Serve, open_page: Open, rows: OwnedRows, schedules: tuple[int, int]
) -> None:
    page = open_page(f"{serve()}#/jobs/{rows.job_id}/tasks/0")
    page.get_by_label("trace").check()
    code = page.get_by_role("group", name="Trace of schedule")
    code.wait_for()
    assert code.locator("strong").all_inner_texts() == ["decision=[4]"]


def test_two_schedules_are_compared_and_a_reload_keeps_them(
    serve: Serve, open_page: Open, rows: OwnedRows, schedules: tuple[int, int]
) -> None:
    slow, fast = schedules
    page = open_page(f"{serve()}#/jobs/{rows.job_id}/tasks/0")
    page.get_by_role("combobox", name="beside").select_option(str(slow))
    page.get_by_text(f"faster than #{slow}").wait_for()
    page.reload()
    code = page.get_by_role("group", name=f"Schedule #{slow}, 20 µs beside Schedule #{fast}, 10 µs")
    code.wait_for()
    assert code.locator("mark").all_inner_texts() == ["2", "4"]


def test_a_schedule_without_scripts_says_why_there_are_none(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    old = promote(rows, "w0", 20.0)
    page = open_page(f"{serve()}#/jobs/{rows.job_id}/tasks/0")
    page.get_by_text(f"No script of schedule #{old} was kept").wait_for()
