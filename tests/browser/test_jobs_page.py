"""The list of jobs in a browser: states, choices in the address, cancelling, keys, prefixes and colours."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import onnx
import pytest

from mallorn.core.states import JobState
from mallorn.core.version import VERSION
from mallorn.db.repositories.jobs import JobLabels, Jobs
from mallorn.db.session import Database
from tests.browser.conftest import Open
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.rows import new_job
from tests.fixtures.waiting import wait_for

KEY = "a-secret"
Serve = Callable[..., str]


@pytest.fixture
def rows(quiet_database: Database) -> OwnedRows:
    """A tuning job `mlp`, and a queued one `bert`."""
    rows = OwnedRows(quiet_database)
    rows.write(lambda session: Jobs(session).create(new_job("local", name="bert", target_id=rows.target_id)))
    return rows


def wait_until_listed(page: Any, *names: str) -> None:
    """Wait until the list has these jobs and no others; the service answers each new filter."""
    links = page.locator("tbody a")
    wait_for(lambda: links.all_inner_texts() == list(names), f"the list of {names}")


def test_without_jobs_the_page_says_how_to_start_one(serve: Serve, open_page: Open) -> None:
    page = open_page(serve())
    page.get_by_text("No jobs yet").wait_for()
    assert "mallorn tune" in page.inner_text("main")


def test_without_jobs_an_example_is_one_click_away(
    serve: Serve, open_page: Open, quiet_database: Database, tmp_path: Path
) -> None:
    page = open_page(serve())
    target = {"kind": "llvm", "num-cores": 2}
    page.route("**/api/v1/jobs", lambda route: route.continue_(post_data=retargeted(route.request, target)))
    page.get_by_role("button", name="Tune an example").click()
    page.get_by_role("heading", name="example-mlp.onnx").wait_for()
    with quiet_database.session() as session:
        (job,) = Jobs(session).list("local", None, None, 10).items
    model = onnx.load_from_string((tmp_path / "artifacts" / "models" / job.model_id).read_bytes())
    onnx.checker.check_model(model, full_check=True)


def retargeted(request: Any, target: dict[str, Any]) -> str:
    """A coordinator without devices does not know what `local` is."""
    return json.dumps(request.post_data_json | {"target": target})


def test_without_jobs_the_snippets_name_this_server(serve: Serve, open_page: Open) -> None:
    url = serve().rstrip("/")
    page = open_page(url)
    snippets = page.get_by_role("region", name="From elsewhere").inner_text()
    assert f"mallorn tune model.onnx --url {url}" in snippets
    assert f'mallorn.Client("{url}")' in snippets
    assert f"{url}/api/v1/models" in snippets


def test_the_foot_of_every_page_names_the_version_and_the_api(serve: Serve, open_page: Open) -> None:
    url = serve()
    page = open_page(f"{url}#/fleet")
    page.get_by_text(f"Mallorn {VERSION}").wait_for()
    link = page.get_by_role("link", name="API", exact=True)
    assert link.evaluate("link => link.href") == f"{url}docs"


def test_jobs_of_one_name_are_told_apart(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    for seed in (1, 2):
        new = new_job("local", name="bert", target_id=rows.target_id, seed=seed)
        rows.write(lambda session, new=new: Jobs(session).create(new))
    page = open_page(serve())
    page.get_by_text("seed 2 · ").wait_for()
    page.get_by_text("seed 1 · ").wait_for()


def test_on_a_narrow_screen_jobs_are_cards(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(serve(), viewport={"width": 400, "height": 800})
    cards = page.get_by_role("list", name="Jobs")
    cards.get_by_role("link", name="mlp").wait_for()
    assert page.locator("table").count() == 0
    page.get_by_role("combobox", name="Order").select_option("name")
    page.get_by_role("combobox", name="State").first.select_option("queued")
    links = cards.get_by_role("link")
    wait_for(lambda: links.all_inner_texts() == ["bert"], "the list of queued jobs")


def test_a_wrong_key_is_told_inside_its_dialog(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(serve(api_keys={"local": hashlib.sha256(KEY.encode()).hexdigest()}))
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="API key").fill("another")
    dialog.get_by_role("button", name="Sign in").click()
    dialog.get_by_text("this service does not know the API key").wait_for()
    dialog.get_by_role("textbox", name="API key").fill(KEY)
    dialog.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="mlp").wait_for()


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
    page.get_by_role("button", name="Name", exact=True).click()
    page.get_by_label("State").select_option("queued")
    page.get_by_role("link", name="mlp").wait_for(state="detached")
    wait_until_listed(page, "bert")
    page.reload()
    page.get_by_role("link", name="bert").wait_for()
    wait_until_listed(page, "bert")
    assert page.get_by_label("Select bert").is_checked()
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Name")


def test_the_server_filters_by_name_label_and_day(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    rows.write(lambda session: JobLabels(session).change(rows.job_id, {"team": "vision", "nightly": ""}))
    page = open_page(serve())
    page.get_by_role("link", name="bert").wait_for()
    page.get_by_label("Label").fill("team=vision, nightly")
    page.get_by_role("link", name="bert").wait_for(state="detached")
    wait_until_listed(page, "mlp")
    page.reload()
    page.get_by_text("nightly, team=vision").wait_for()
    wait_until_listed(page, "mlp")
    page.get_by_label("Before").fill("2020-01-01")
    page.get_by_text("No job fits").wait_for()
    page.get_by_role("button", name="Show all").click()
    page.get_by_role("link", name="bert").wait_for()
    page.get_by_label("Find").fill("BER")
    page.get_by_role("link", name="mlp").wait_for(state="detached")
    wait_until_listed(page, "bert")


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


def test_a_key_is_asked_for_once_and_kept_nowhere_that_a_script_reads(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    url = serve(api_keys={"local": hashlib.sha256(KEY.encode()).hexdigest()})
    page = open_page(url)
    page.get_by_role("textbox", name="API key").fill(KEY)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="mlp").wait_for()
    page.reload()
    page.get_by_role("link", name="mlp").wait_for()
    assert page.evaluate("sessionStorage.length + document.cookie.length") == 0
    # The page's secret is no key, and without the cookie, which no script reads, it signs nobody in.
    [(name, secret)] = page.evaluate("Object.entries(localStorage)")
    assert name == "mallorn-session"
    assert KEY not in secret
    assert (
        httpx.get(f"{url.rstrip('/')}/api/v1/jobs", headers={"X-Mallorn-Session": secret}).status_code == 401
    )
    page.get_by_text("local", exact=True).first.wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("dialog", name="An API key is needed").wait_for()
    page.reload()
    page.get_by_role("dialog", name="An API key is needed").wait_for()


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
