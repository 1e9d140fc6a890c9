"""What axe finds on every page: nothing serious, in light and in dark."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.artifact_uris import scripts_uri
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.session import Database
from tests.browser.conftest import Open
from tests.browser.looks import SEARCH
from tests.fixtures.command_line import ROOT
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.schedules import promote

Serve = Callable[..., str]
AXE = ROOT / "services/dashboard/web/node_modules/axe-core/axe.min.js"
GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("no axe-core: make page")
    return AXE.read_text()


class TwoJobs(OwnedRows):
    other_id = ""


@pytest.fixture
def rows(quiet_database: Database, tmp_path: Path) -> TwoJobs:
    """Two tuning jobs; one with a round that brought a time and a failure, a schedule, a model, seconds."""
    rows = TwoJobs(quiet_database)
    rows.other_id = rows.write(lambda session: rows.add_job(session, "local", ("w0", "w1")))
    promote(rows, "w0", 30.0)
    file = Path(scripts_uri(str(tmp_path / "artifacts"), "local", "w0", "[]"))
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"original": "one", "scheduled": "two", "trace": "sch.tile(decision=[2])"}))
    model = NewCostModel("matmul", rows.target_id, "xgboost", 9, 9, metrics={"pairwise": 0.8}, blob=b"model")
    rows.write(lambda session: [CostModels(session).add(model) for _ in range(2)])
    rows.closed_round(rows.ok(0, 20.0), rows.failed(1))
    seconds = {"import": {"wall": 8.08}, "build": {"wall": 5.56, "processor": 2.26}, "rest": {"wall": 1.0}}
    rows.write(lambda session: Jobs(session).store_report_columns(rows.job_id, report={"seconds": seconds}))
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
    serve: Serve, open_page: Open, rows: TwoJobs, axe: str, scheme: str
) -> None:
    url = serve()
    page = open_page(url, color_scheme=scheme)
    found = []
    job = f"#/jobs/{rows.job_id}"
    compare = f"#/compare?jobs={rows.job_id},{rows.other_id}"
    for place in ("#/jobs", job, f"{job}/tasks/0", compare, "#/fleet", "#/dataset", "#/costmodels", "#/keys"):
        page.goto(url + place)
        page.locator("h1").wait_for()
        page.locator(".spinner").first.wait_for(state="detached")
        found += [f"{place} {text}" for text in complaints(page, axe)]
    page.goto(url + "#/jobs")
    page.get_by_role("button", name="Tune a model").first.click()
    page.get_by_role("dialog").get_by_text("Options", exact=True).click()
    page.get_by_label(SEARCH).wait_for()
    found += complaints(page, axe)
    assert found == []
