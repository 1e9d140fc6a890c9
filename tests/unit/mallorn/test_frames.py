"""Rows as DataFrames; pandas stays optional, so a small stand-in shows what it is given."""

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from mallorn import Client
from mallorn.client.dataframes import HISTORY
from mallorn.core.installation import MissingPackage, import_optional_module, pip_install_command
from mallorn.core.outcomes import Outcome
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.decision_log import FIRST_PASS, run_round

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@dataclass
class Frame:
    """What was handed to `pandas.DataFrame`."""

    rows: list[dict[str, Any]]
    columns: list[str] | None


@pytest.fixture
def pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("pandas")
    module.DataFrame = Frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", module)


@pytest.fixture
def tuned(owned: OwnedRows) -> OwnedRows:
    run_round(owned, "w0", [30.0, 40.0], FIRST_PASS)
    run_round(owned, "w1", [100.0, None], FIRST_PASS)
    run_round(owned, "w1", [80.0, 90.0], FIRST_PASS)
    return owned


@pytest.mark.usefixtures("pandas")
def test_a_jobs_history_is_a_row_a_round(coordinator: Coordinator, tuned: OwnedRows) -> None:
    with Client(coordinator.url) as client:
        found: Any = client.job(tuned.job_id).history()
    assert found.columns == list(HISTORY)
    kept = [(row["round"], row["trials"], row["total_us"], row["task"]) for row in found.rows]
    assert kept == [(1, 4, 230.0, "w1"), (2, 6, 190.0, "w1")]
    assert all(set(row) == set(HISTORY) for row in found.rows)


@pytest.mark.usefixtures("pandas")
def test_records_are_a_row_a_measurement(coordinator: Coordinator, tuned: OwnedRows) -> None:
    with Client(coordinator.url) as client:
        whole: Any = client.job(tuned.job_id).records_frame()
        failed: Any = client.job(tuned.job_id).records_frame(Outcome.BUILD_ERROR)
        newest: Any = client.records_frame(limit=2, workload="w1")
    assert len(whole.rows) == 6
    assert [row["error"] for row in failed.rows] == ["no"]
    assert [row["workload"] for row in newest.rows] == ["w1", "w1"]


def test_records_are_values_of_a_client_as_of_a_job(coordinator: Coordinator, tuned: OwnedRows) -> None:
    with Client(coordinator.url) as client:
        of_the_client = list(client.records(job=tuned.job_id))
        assert list(client.job(tuned.job_id).records()) == of_the_client
    assert len(of_the_client) == 6


def test_without_pandas_the_next_step_is_said(
    coordinator: Coordinator, tuned: OwnedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with Client(coordinator.url) as client, pytest.raises(MissingPackage) as caught:
        client.job(tuned.job_id).history()
    assert caught.value.hint == pip_install_command("notebook")


def test_a_package_that_is_there_and_broken_says_what_it_misses(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "halfway.py").write_text("import its_own_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="its_own_dependency"):
        import_optional_module("halfway", "a DataFrame", "notebook")
