"""The report from the page of a job: it opens in a tab of its own, in its colours, with a key and without."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from mallorn.db.session import Database
from tests.browser.conftest import Open
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.decision_log import FIRST_PASS, run_round

KEY = "a-secret"
HASHES = {"local": hashlib.sha256(KEY.encode()).hexdigest()}
Serve = Callable[..., str]


@pytest.fixture
def rows(quiet_database: Database) -> OwnedRows:
    rows = OwnedRows(quiet_database)
    run_round(rows, "w0", [30.0, 40.0], FIRST_PASS)
    run_round(rows, "w1", [20.0, None], FIRST_PASS)
    run_round(rows, "w1", [10.0], FIRST_PASS)
    return rows


def open_report(page: Any) -> Any:
    """The tab that the button opens, once its title is there."""
    button = page.get_by_role("button", name="Report (HTML)")
    with page.context.expect_page() as opened:
        button.click()
    report = opened.value
    report.get_by_role("heading", name="mlp: job").wait_for()
    return report


def assert_styled(report: Any) -> None:
    assert report.evaluate("getComputedStyle(document.body).maxWidth") == "1200px"
    assert report.locator("svg .curve").first.evaluate("curve => getComputedStyle(curve).fill") == "none"


def test_a_button_opens_the_report(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    page = open_page(f"{serve()}#/jobs/{rows.job_id}")
    report = open_report(page)
    assert report.url.startswith("blob:")
    assert_styled(report)


def test_below_a_prefix_it_opens_too(serve: Serve, open_page: Open, rows: OwnedRows) -> None:
    open_report(open_page(f"{serve('/tools/mallorn')}#/jobs/{rows.job_id}"))


def with_key(page: Any) -> Any:
    page.get_by_role("textbox", name="API key").fill(KEY)
    page.get_by_role("button", name="Sign in").click()
    return page


def test_with_a_key_it_opens_as_well_and_is_still_there_after_a_reload(
    serve: Serve, open_page: Open, rows: OwnedRows
) -> None:
    page = with_key(open_page(f"{serve(api_keys=HASHES)}#/jobs/{rows.job_id}"))
    report = open_report(page)
    assert_styled(report)
    report.reload()
    report.get_by_role("heading", name="mlp: job").wait_for()
    assert report.evaluate("window.opener") is None
