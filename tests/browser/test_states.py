"""What stands on a page whose thing is on its way, failed, not there, or not to be drawn: never nothing."""

from collections.abc import Callable
from typing import Final

import pytest

from tests.browser.conftest import Open
from tests.browser.looks import LOOKS, every_look, faults, keep_picture, settle
from tests.fixtures.coordinator import OwnedRows

Serve = Callable[..., str]
#: Every page with what it asks for first.
PAGES: Final = {
    "#/jobs": "jobs?*",
    "#/jobs/some": "jobs/some",
    "#/jobs/some/tasks/0": "jobs/some",
    "#/compare?jobs=some,other": "jobs/*",
    "#/fleet": "devices",
    "#/dataset": "dataset/stats",
    "#/costmodels": "costmodels*",
    "#/keys": "keys",
}

RETRIED_MS: Final = 60_000  # the page has asked again by then


@pytest.mark.parametrize("place", PAGES)
def test_a_page_that_waits_says_for_what(empty_service: str, open_page: Open, place: str) -> None:
    page = open_page("about:blank")
    page.route(f"**/api/v1/{PAGES[place]}", lambda _route: None)
    page.goto(empty_service + place)
    page.get_by_role("status").filter(has_text="Loading").first.wait_for()
    assert page.locator("h1").is_visible()


@every_look
@pytest.mark.parametrize("place", PAGES)
def test_a_page_that_cannot_be_had_says_why_and_comes_back(
    empty_service: str, open_page: Open, place: str, look: str
) -> None:
    page = open_page("about:blank", fake_clock=True, **LOOKS[look])
    page.route("**/api/**", lambda route: route.abort())
    page.goto(empty_service + place)
    alert = page.get_by_role("alert").first
    alert.wait_for()
    assert "The coordinator does not answer." in alert.inner_text()
    settle(page)
    keep_picture(page, f"failed-{'-'.join(place.partition('?')[0].split('/')[1:])}-{look}")
    assert page.locator("h1").is_visible()
    assert faults(page) == []
    page.unroute("**/api/**")
    page.clock.fast_forward(RETRIED_MS)
    page.get_by_text("The coordinator does not answer.").first.wait_for(state="detached")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("#/nowhere", "There is no such page"),
        ("#/jobs/none", "There is no such job"),
        ("#/jobs/none/tasks/0", "There is no such job"),
        ("#/jobs/{job}/tasks/7", "This job has no such task"),
        ("#/jobs/{job}/tasks/first", "This job has no such task"),
    ],
)
def test_what_is_not_there_is_told_with_a_way_on(
    serve: Serve, open_page: Open, rows: OwnedRows, place: str, words: str
) -> None:
    page = open_page(serve() + place.format(job=rows.job_id))
    page.get_by_text(words).wait_for()
    assert page.locator("h1").is_visible()
    page.get_by_role("main").get_by_role("link", name="To the job").click()
    page.get_by_text(words).wait_for(state="detached")
    page.get_by_role("heading", level=1).wait_for()


def test_a_job_that_is_missing_in_a_comparison_can_be_left_out(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = open_page(f"{serve()}#/compare?jobs={rows.job_id},none,gone")
    page.get_by_role("button", name="Go on without none").click()
    page.get_by_role("button", name="Go on without none").wait_for(state="detached")
    page.get_by_role("button", name="Go on without gone").wait_for()


def test_a_page_that_breaks_leaves_the_others_and_can_be_tried_again(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = open_page(serve(), expect="Cannot read properties of null")
    page.route("**/api/v1/devices", lambda route: route.fulfill(json={"items": None}))
    page.get_by_role("link", name="Fleet").click()
    page.get_by_text("could not be drawn").wait_for()
    page.get_by_role("link", name="Dataset").click()
    page.get_by_role("heading", name="Dataset").wait_for()
    page.get_by_role("link", name="Fleet").click()
    page.get_by_text("could not be drawn").wait_for()
    page.unroute("**/api/v1/devices")
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("No device yet").wait_for()


def test_the_tab_is_named_after_the_page(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(serve())
    page.get_by_role("link", name="mlp").click()
    page.get_by_role("heading", name="mlp").wait_for()
    assert page.title() == "mlp · Mallorn"
    page.get_by_role("link", name="Fleet").click()
    page.get_by_role("heading", name="Fleet").wait_for()
    assert page.title() == "Fleet · Mallorn"
