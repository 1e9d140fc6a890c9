"""`mallorn dataset`, as it is typed: on a data directory, a database or a coordinator."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.installation import pip_install_command
from mallorn.db.tables import Measurement
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.coordinator import Coordinator
from tests.fixtures.database import BOTH
from tests.fixtures.filled_dataset import Filled
from tests.fixtures.parcels import small_parcel

dataset = partial(mallorn, "dataset")


@pytest.fixture(autouse=True)
def here(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the machine of a filled database."""
    monkeypatch.delenv("MALLORN_URL", raising=False)
    monkeypatch.setenv("MALLORN_DATABASE_URL", filled.database.url)


def test_statistics_come_from_the_database_or_the_coordinator(filled: Filled, start: Any) -> None:
    found = data(dataset("stats", "--json"))
    assert (found["measurements"], found["outcomes"][0]) == (5, {"name": "ok", "count": 3})
    table = dataset("stats").stdout
    assert "5 measurements of 2 workloads" in table
    assert "matmul" in table
    coordinator: Coordinator = start()
    assert data(dataset("stats", "--json", "--url", coordinator.url))["measurements"] == 0  # ada's, not ours
    assert "mallorn tune" in dataset("stats", "--url", coordinator.url).stderr


def test_a_snapshot_freezes_what_an_export_writes(filled: Filled, tmp_path: Path) -> None:
    assert "no snapshots yet" in dataset("snapshot").stderr
    [taken] = data(dataset("snapshot", "before", "--op", "matmul", "--json"))
    assert (taken["name"], taken["rows"], taken["filter"]) == ("before", 5, {"op": "matmul"})
    filled.closed_round(filled.ok(0, 1.0))
    told = data(dataset("export", tmp_path / "out", "--snapshot", "before", "--json"))
    assert (told["measurements"], told["snapshot"]["digest"]) == (5, taken["digest"])
    assert data(dataset("snapshot", "before", "--check", "--json"))[0]["digest"] == taken["digest"]
    refused(dataset("snapshot", "before"), "there is a snapshot before already")
    refused(dataset("export", tmp_path / "x", "--snapshot", "other"), "no snapshot other")
    refused(dataset("export", tmp_path / "x", "--snapshot", "before", "--op", "x"), "has a filter already")
    refused(dataset("snapshot", "a/b"), "cannot be the name of a snapshot")
    assert [row["name"] for row in data(dataset("snapshot", "--json"))] == ["before"]


@BOTH
def test_rows_that_are_gone_are_noticed(filled: Filled) -> None:
    dataset("snapshot", "all")
    with filled.database.transaction() as session:
        session.delete(session.get_one(Measurement, 5))
    refused(dataset("snapshot", "all", "--check"), "changed after it was taken")


@BOTH
def test_the_same_rows_are_frozen_under_the_same_name(tmp_path: Path) -> None:
    names = [
        data(dataset("export", tmp_path / out, "--model", "mlp", "--json"))["snapshot"]["name"]
        for out in ("one", "two")
    ]
    assert names[0] == names[1]
    assert len(data(dataset("snapshot", "--json"))) == 1


def test_an_import_makes_the_dataset_where_there_is_none_and_leaves_out_programs_whose_keys_are_made_up(
    filled: Filled, tmp_path: Path
) -> None:
    parcel, home = small_parcel(tmp_path / "parcel"), tmp_path / "home"
    filled.exported(tmp_path / "out")  # its programs are none
    refused(dataset("stats", "--data", home), "there is no dataset at")
    told = data(dataset("import", parcel, tmp_path / "out", "--data", home, "--json"))
    assert (told["added"], told["known"], sum(told["skipped"].values())) == (6, 0, 5)
    assert data(dataset("stats", "--data", home, "--json"))["imported_measurements"] == 6


@BOTH
def test_logs_of_others_come_in_by_the_same_command(tmp_path: Path) -> None:
    log = tmp_path / "records.json"
    good = {"i": [["task", "llvm"], [[], []]], "r": [[1e-3], 0, 1.0, 1600000000]}
    log.write_text(f"{json.dumps(good)}\ntorn\n")
    result = dataset("import", log)
    assert result.stdout == "1 added, 0 known already; skipped: 1 bad lines\n"
    assert f"{log}, line 2: the line is not a measure record" in result.stderr
    assert "tenset" in dataset("stats").stdout


def test_nothing_is_stored_unless_everything_that_is_named_is_there(tmp_path: Path) -> None:
    dataset("export", tmp_path / "out")
    refused(
        dataset("import", tmp_path / "out", tmp_path / "none", "--data", tmp_path / "home"), "there is no"
    )
    assert not (tmp_path / "home").exists()


def test_where_pyarrow_is_missing_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        name for name in sys.modules if name.startswith(("mallorn.db.dataset.snapshots", "pyarrow"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(dataset("export", tmp_path / "out"), "pyarrow", pip_install_command("server"))
