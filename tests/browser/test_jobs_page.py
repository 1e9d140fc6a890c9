"""The list of jobs in a browser: states, choices in the address, cancelling, keys, prefixes and colours."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from db.repositories.jobs import Jobs
from db.session import Database
from mallorn.core.states import JobState
from tests.browser.conftest import Open
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.rows import new_job

KEY = "a-secret"
Serve = Callable[..., str]


@pytest.fixture
def rows(quiet_database: Database) -> OwnedRows:
    """A tuning job `mlp`, and a queued one `bert`."""
    rows = OwnedRows(quiet_database)
    rows.write(lambda session: Jobs(session).create(new_job("local", name="bert", target_id=rows.target_id)))
    return rows


def names(page: Any) -> list[str]:
    return [link.inner_text() for link in page.locator("tbody a").all()]


def test_without_jobs_the_page_says_how_to_start_one(serve: Serve, open_page: Open) -> None:
    page = open_page(serve())
    page.get_by_text("No jobs yet").wait_for()
    assert "mallorn tune" in page.inner_text("main")


def test_jobs_are_shown_with_state_and_target(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(serve())
    page.get_by_role("link", name="mlp").wait_for()
    text = page.inner_text("table")
    assert "tuning" in text
    assert "queued" in text
    assert "llvm · 2 cores" in text
    assert "local" in text


def test_filter_order_and_selection_survive_a_reload(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(serve())
    page.get_by_label("Select bert").check()
    page.get_by_role("button", name="Model", exact=True).click()
    page.get_by_label("State").select_option("queued")
    page.get_by_role("link", name="mlp").wait_for(state="detached")
    assert names(page) == ["bert"]
    page.reload()
    page.get_by_role("link", name="bert").wait_for()
    assert names(page) == ["bert"]
    assert page.get_by_label("Select bert").is_checked()
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Model")


def test_selected_jobs_are_cancelled_together_after_a_question(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = open_page(serve())
    page.get_by_label("Select all shown").check()
    page.get_by_role("button", name="Cancel 2").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel them").click()
    page.get_by_role("dialog").wait_for(state="detached")
    page.locator(".mark-cancelled").nth(1).wait_for()
    assert rows.read(lambda session: Jobs(session).get(rows.job_id, None).state) == JobState.CANCELLED


def test_the_keyboard_alone_opens_a_job(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(serve())
    page.get_by_role("link", name="mlp").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.get_by_role("link", name="mlp").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="mlp").wait_for()


def test_a_key_is_asked_for_and_kept_in_the_tab(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(serve(api_keys={"local": hashlib.sha256(KEY.encode()).hexdigest()}))
    page.get_by_role("textbox", name="API key").fill(KEY)
    page.get_by_role("button", name="Use this key").click()
    page.get_by_role("link", name="mlp").wait_for()
    page.reload()
    page.get_by_role("link", name="mlp").wait_for()
    assert page.evaluate("localStorage.length") == 0


def test_colours_follow_the_system(serve: Serve, open_page: Open) -> None:
    url = serve()
    brightness = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    light, dark = (open_page(url, color_scheme=scheme).evaluate(brightness) for scheme in ("light", "dark"))
    assert light > 200
    assert dark < 60


def test_a_coordinator_that_went_away_leaves_what_was_known(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = open_page(serve())
    page.get_by_role("link", name="mlp").wait_for()
    page.route("**/api/**", lambda route: route.abort())
    page.get_by_text("What is shown is from before").wait_for()
    assert page.get_by_role("link", name="mlp").is_visible()
    page.unroute("**/api/**")
    page.get_by_text("What is shown is from before").wait_for(state="detached")
