"""A job's report over HTTP: the page that the command writes, for its owner alone."""

import re
from pathlib import Path

import pytest

from mallorn.db.repositories.jobs import Jobs
from mallorn.report.style_and_csp import SERVED
from mallorn.services.coordinator.jobs import list_and_show as service
from tests.fixtures.answers import mallorn
from tests.fixtures.coordinator import Coordinator, OwnedRows, Start
from tests.fixtures.decision_log import FIRST_PASS, looked_ahead, run_round
from tests.fixtures.markup import assert_inert
from tests.unit.coordinator.test_auth import HASHES, as_owner

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
TIMING = {"median": 2000.0, "low": 1900.0, "high": 2100.0}


@pytest.fixture
def tuned(owned: OwnedRows) -> OwnedRows:
    """Three rounds with failures, and a finish that timed the whole model."""
    run_round(owned, "w0", [30.0, 40.0], FIRST_PASS)
    run_round(owned, "w1", [1200.0, None], FIRST_PASS)
    run_round(owned, "w1", [1100.0, None], looked_ahead(1080.0, 1210.0))
    owned.write(
        lambda session: Jobs(session).store_report_columns(
            owned.job_id, report={"latency_us": {"tuned": TIMING}}
        )
    )
    return owned


def undated(page: str) -> str:
    return re.sub(r"written by Mallorn [^<]*", "", page)


def test_it_is_the_page_that_the_command_writes(
    coordinator: Coordinator, tuned: OwnedRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_LIMIT", 2)  # three rounds are two pages
    served = coordinator.http.get(f"/jobs/{tuned.job_id}/report")
    file = tmp_path / "report.html"
    assert mallorn("jobs", "report", tuned.job_id, "-o", file, "--url", coordinator.url).exit_code == 0
    assert undated(served.text) == undated(file.read_text())
    assert "3 rounds" in assert_inert(served.text).text
    assert "build_error2fused_w1no" in assert_inert(served.text).text


def test_a_browser_may_show_it_and_nothing_else(coordinator: Coordinator, owned: OwnedRows) -> None:
    answer = coordinator.http.get(f"/jobs/{owned.job_id}/report")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == SERVED
    assert "unsafe" not in SERVED


def test_the_beginning_of_an_id_finds_it(coordinator: Coordinator, owned: OwnedRows) -> None:
    assert owned.job_id in coordinator.http.get(f"/jobs/{owned.job_id[:8]}/report").text


def test_there_is_none_of_a_job_that_is_not_there(coordinator: Coordinator) -> None:
    answer = coordinator.http.get("/jobs/0123456789abcdef/report")
    assert (answer.status_code, answer.json()["error"]) == (404, "NotFound")
    assert answer.json()["hint"]


def test_another_owner_does_not_find_it(start: Start) -> None:
    guarded = start(api_keys=HASHES)
    path = f"/jobs/{OwnedRows(guarded.database, 'ada').job_id}/report"
    assert guarded.http.get(path, headers=as_owner("ada")).status_code == 200
    assert guarded.http.get(path, headers=as_owner("bob")).status_code == 404
    assert guarded.http.get(path).status_code == 401
