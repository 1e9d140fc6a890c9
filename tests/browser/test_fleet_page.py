"""The fleet in a browser: what ran when, and what waits."""

from collections.abc import Callable

from mallorn.core.states import StageKind
from mallorn.db.repositories.workers import StageRuns, Workers
from tests.browser.conftest import Open
from tests.fixtures.coordinator import OwnedRows

Serve = Callable[..., str]


def run_round(rows: OwnedRows) -> None:
    """On the worker `w`: one trial that was timed and three that failed."""
    rows.closed_round(rows.ok(0, run_ms=100.0), *(rows.failed(slot) for slot in (1, 2, 3)))


def test_rounds_are_drawn_on_the_lane_of_their_worker(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    run_round(rows)
    rows.write(lambda session: rows.add_round(session, "w1"))
    page = open_page(f"{serve()}#/fleet")
    lane = page.get_by_role("img", name="w: 1 round since")
    lane.wait_for()
    assert lane.locator("rect.bar-failed").count() == 1
    facts = page.locator(".facts").inner_text()
    assert "1 round" in facts
    assert "75 %" in facts


def test_the_rounds_are_there_as_a_table_for_those_who_cannot_see_the_lanes(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    run_round(rows)
    page = open_page(f"{serve()}#/fleet")
    page.get_by_text("All of it as a table").click()
    page.get_by_role("group", name="Rounds").get_by_role("link", name="w0").click()
    page.get_by_role("heading", name="w0").wait_for()


def test_imports_trainings_and_finishes_are_thin_bars_that_lead_to_their_job(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    run_round(rows)
    run_id = rows.write(lambda session: StageRuns(session).begin(rows.job_id, StageKind.IMPORT, "w"))
    rows.write(lambda session: StageRuns(session).end(run_id))
    page = open_page(f"{serve()}#/fleet")
    page.get_by_role("img", name="w: 1 round and 1 other stretch since").wait_for()
    page.get_by_text("All of it as a table").click()
    page.get_by_role("group", name="Rounds").get_by_role("link", name="import").click()
    page.get_by_role("heading", name="mlp").wait_for()


def test_a_worker_on_which_nothing_ran_has_an_empty_lane(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    rows.write(lambda session: Workers(session).record_seen("idle-one", "host", {}))
    page = open_page(f"{serve()}#/fleet")
    page.get_by_role("img", name="idle-one: 0 rounds since").wait_for()


def test_the_window_is_kept_in_the_address(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    run_round(rows)
    page = open_page(f"{serve()}#/fleet")
    page.get_by_label("The last").select_option("day")
    page.reload()
    page.get_by_role("img", name="w: 1 round since").wait_for()
    assert page.get_by_label("The last").input_value() == "day"
