"""Jobs over one another in a browser."""

from collections.abc import Callable

import pytest

from mallorn.core.states import RoundState
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.rounds import Rounds
from tests.browser.conftest import Open
from tests.fixtures.coordinator import OwnedRows

Serve = Callable[..., str]


@pytest.fixture
def other(rows: OwnedRows) -> str:
    """A second job of the same tasks, w0 at 5 µs; the first one has it at 20 µs."""
    run_round(rows, rows.job_id, "w0", 20.0)
    run_round(rows, rows.job_id, "w1", 10.0)
    second = rows.write(lambda session: rows.add_job(session, "local", ("w0", "w1")))
    run_round(rows, second, "w0", 5.0)
    return second


def run_round(rows: OwnedRows, job_id: str, workload: str, latency_us: float) -> None:
    round_id = rows.write(lambda session: rows.add_round(session, workload, job_id))
    hold = rows.write(lambda session: Rounds(session).claim(round_id, "w", 60))
    assert hold is not None
    rows.write(lambda session: Measurements(session).add_trials(hold, [rows.ok(0, latency_us)]))
    rows.write(lambda session: Rounds(session).close(hold, RoundState.DONE))


def test_jobs_are_chosen_in_the_list_and_drawn_over_one_another(
    serve: Serve, open_page: Open, rows: OwnedRows, other: str
) -> None:
    page = open_page(serve())
    page.get_by_label("Select all shown").check()
    page.get_by_role("button", name="Compare 2").click()
    page.get_by_role("heading", name="Compare", exact=True).wait_for()
    page.get_by_role("img", name="40 µs after 2 trials").wait_for()
    page.get_by_role("img", name="25 µs after 1 trial,").wait_for()
    assert page.get_by_role("group", name="Job beside job").get_by_role("link").count() == 2


def test_the_choice_of_jobs_and_axis_survives_a_reload(
    serve: Serve, open_page: Open, rows: OwnedRows, other: str
) -> None:
    page = open_page(f"{serve()}#/compare?jobs={rows.job_id},{other}")
    page.get_by_label("seconds").check()
    page.reload()
    page.get_by_role("img", name="after").wait_for()
    assert page.get_by_label("seconds").is_checked()


def test_the_same_task_stands_side_by_side(
    serve: Serve, open_page: Open, rows: OwnedRows, other: str
) -> None:
    page = open_page(f"{serve()}#/compare?jobs={rows.job_id},{other}&sort=name")
    table = page.get_by_role("group", name="Task beside task")
    table.wait_for()
    assert table.locator("tbody tr").count() == 2
    table.get_by_role("link").first.click()
    page.get_by_role("heading", name="w0").wait_for()


def test_one_job_is_nothing_to_compare(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(f"{serve()}#/compare?jobs={rows.job_id}")
    page.get_by_text("Choose two jobs or more").wait_for()


def test_a_job_that_is_gone_is_named_and_can_be_left_out(
    serve: Serve, open_page: Open, rows: OwnedRows, other: str
) -> None:
    page = open_page(f"{serve()}#/compare?jobs={rows.job_id},gone,{other}")
    page.get_by_role("alert").wait_for()
    page.get_by_role("group", name="Job beside job").wait_for()
    page.get_by_role("button", name="Go on without gone").click()
    page.get_by_role("alert").wait_for(state="detached")
