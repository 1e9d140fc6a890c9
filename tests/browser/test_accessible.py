"""What axe finds on every page: nothing serious, in light and in dark."""

from collections.abc import Callable
from typing import Any

import pytest

from db.repositories.measurements import Measurements
from db.repositories.rounds import Rounds
from db.session import Database
from mallorn.core.states import RoundState
from tests.browser.conftest import Open
from tests.fixtures.command_line import ROOT
from tests.fixtures.coordinator import OwnedRows

Serve = Callable[..., str]
AXE = ROOT / "services/dashboard/web/node_modules/axe-core/axe.min.js"
GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("no axe-core: make page")
    return AXE.read_text()


@pytest.fixture
def rows(quiet_database: Database) -> OwnedRows:
    """A tuning job with a round that brought a time and a failure."""
    rows = OwnedRows(quiet_database)
    round_id, attempt = rows.claimed_round("w0")
    found = [rows.ok(0, 20.0), rows.failed(1)]
    rows.write(lambda session: Measurements(session).add_batch(round_id, attempt, found))
    rows.write(lambda session: Rounds(session).close(round_id, attempt, RoundState.DONE))
    return rows


def complaints(page: Any, axe: str) -> list[str]:
    page.evaluate(axe)
    found = page.evaluate("axe.run().then(result => result.violations)")
    return [
        f"{rule['id']}: {rule['help']} at {rule['nodes'][0]['target']} {rule['nodes'][0]['failureSummary']}"
        for rule in found
        if rule["impact"] in GRAVE
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    serve: Serve, open_page: Open, rows: OwnedRows, axe: str, scheme: str
) -> None:
    url = serve()
    page = open_page(url, color_scheme=scheme)
    found = []
    job = f"#/jobs/{rows.job_id}"
    for place in ("#/jobs", job, f"{job}/tasks/0", "#/fleet", "#/dataset"):
        page.goto(url + place)
        page.locator("h1").wait_for()
        page.locator(".spinner").first.wait_for(state="detached")
        found += [f"{place} {text}" for text in complaints(page, axe)]
    page.goto(url + "#/jobs")
    page.get_by_role("button", name="Tune a model").first.click()
    page.get_by_role("dialog").wait_for()
    found += complaints(page, axe)
    assert found == []
