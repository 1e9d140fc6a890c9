"""The page behind a proxy that gives it a path of its own, and takes that off what it passes on."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from sqlalchemy.orm import Session

from mallorn.core.states import JobState, Waiting
from mallorn.core.values.event import PausedEvent
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from tests.browser.conftest import Open
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.schedules import promote

Serve = Callable[..., str]
PREFIX: Final = "/tools/mallorn"
PLACES: Final = (
    "#/jobs",
    "#/fleet",
    "#/dataset",
    "#/costmodels",
    "#/keys",
    "#/compare",
    "#/jobs/{job}",
    "#/jobs/{job}/tasks/0",
)


@pytest.fixture
def url(serve: Serve) -> str:
    return serve(prefix=PREFIX)


def test_nothing_outside_of_it_is_asked_for(url: str, open_page: Open, rows: OwnedRows) -> None:
    page = open_page("about:blank")
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(urlsplit(request.url).path))
    for place in PLACES:
        page.goto(url + place.format(job=rows.job_id))
        page.reload()
        page.locator("h1").wait_for()
        page.locator(".spinner").first.wait_for(state="detached")
    assert [path for path in asked if not path.startswith(f"{PREFIX}/")] == []
    kinds = {path.removeprefix(PREFIX).split("/")[1] for path in asked}
    assert kinds >= {"", "assets", "icon.svg", "api"}


def test_links_between_pages_stay_below_it(url: str, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(url)
    page.get_by_role("link", name="mlp").click()
    page.get_by_role("heading", name="mlp").wait_for()
    page.get_by_role("group", name="Tasks").get_by_role("link", name="w0").click()
    page.get_by_role("heading", name="w0").wait_for()
    page.get_by_role("link", name="Fleet").click()
    page.get_by_role("heading", name="Fleet").wait_for()
    assert urlsplit(page.url).path == f"{PREFIX}/"


def test_a_link_into_the_page_survives_a_reload(url: str, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(f"{url}#/jobs/{rows.job_id}/tasks/1")
    page.get_by_role("heading", name="w1").wait_for()
    page.reload()
    page.get_by_role("heading", name="w1").wait_for()


def test_news_come_through(url: str, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(f"{url}#/jobs/{rows.job_id}")
    page.get_by_text("live", exact=True).wait_for()

    def pause(session: Session) -> None:
        Jobs(session).pause(rows.job_id, "local", Waiting("for a cup of tea"))
        Events(session).append(rows.job_id, PausedEvent(state=JobState.PAUSED))

    rows.write(pause)
    page.get_by_text("for a cup of tea").wait_for()


def test_a_job_is_steered(url: str, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(f"{url}#/jobs/{rows.job_id}")
    page.get_by_role("button", name="Pause").click()
    page.locator("h1 .mark-paused").wait_for()


def test_logs_and_report_are_downloaded(url: str, open_page: Open, rows: OwnedRows, tmp_path: Path) -> None:
    exported = tmp_path / "exported"
    exported.mkdir()
    (exported / "database_workload.json").write_text("[]")

    def end(session: Session) -> None:
        Jobs(session).store_report_columns(rows.job_id, export_uri=str(exported))
        Jobs(session).move_to_state(rows.job_id, [JobState.TUNING], JobState.DONE)

    promote(rows, "w0", 10.0)
    rows.write(end)
    page = open_page(f"{url}#/jobs/{rows.job_id}")
    with page.expect_download() as logs:
        page.get_by_role("button", name="Download schedules").click()
    with zipfile.ZipFile(logs.value.path()) as archive:
        assert archive.namelist() == ["database_workload.json"]
    with page.expect_download() as report:
        page.get_by_role("button", name="Download report (JSON)").click()
    told = json.loads(report.value.path().read_text())
    assert told["job"]["id"] == rows.job_id
    assert len(told["rounds"]) == 1


def test_a_model_is_uploaded(url: str, open_page: Open, tmp_path: Path) -> None:
    (tmp_path / "tiny.onnx").write_bytes(b"a model")
    page = open_page(url)
    page.get_by_role("button", name="Tune a model").first.click()
    page.get_by_label("ONNX file").set_input_files(tmp_path / "tiny.onnx")
    page.get_by_role("combobox", name="Target").select_option("other")
    page.get_by_label("Target as JSON or tag").fill('{"kind":"llvm","num-cores":2}')
    page.get_by_role("button", name="Start tuning").click()
    page.get_by_role("heading", name="tiny.onnx").wait_for()
    assert urlsplit(page.url).path == f"{PREFIX}/"
