"""`mallorn costmodels evaluate`, as it is typed: on a database, a snapshot, an export and a recording."""

from functools import partial
from pathlib import Path

import pytest

from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn_research.replay.recording_file import write_tasks
from research.tests.unit.replay.made_up import made_up
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.filled_dataset import Filled

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
evaluate = partial(mallorn, "costmodels", "evaluate")


@pytest.fixture(autouse=True)
def here(enough: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the machine of a dataset with two tasks of one network."""
    monkeypatch.setenv("MALLORN_DATABASE_URL", enough.database.url)


def test_models_stand_side_by_side_with_what_learned_noise() -> None:
    table = evaluate("lightgbm", "draft", "--seeds", 2, "--control").stdout
    heading, first, *_ = table.splitlines()
    for arm in ("LIGHTGBM", "DRAFT", "LIGHTGBM, SCRAMBLED", "DRAFT, SCRAMBLED"):
        assert arm in heading
    assert first.startswith("pairs in order")
    assert first.count("±") == 4
    assert "network score" not in table


def test_every_figure_has_its_seeds() -> None:
    told = data(evaluate("lightgbm", "--seeds", 2, "--split", "within-task", "--json"))
    assert (told["split"], told["measurements"], told["tasks"]) == ("within-task", 45, 2)
    pairs = told["figures"]["lightgbm"]["pairwise"]
    assert len(pairs["seeds"]) == 2
    assert pairs["mean"] == pytest.approx(sum(pairs["seeds"]) / 2)
    assert told["snapshot"].startswith("rows-")


def test_a_host_is_judged_by_what_another_taught(filled: Filled) -> None:
    target_id = filled.target_id
    there = filled.write(lambda session: Contexts(session).ensure(target_id, "other", "0.27.0", 2, {}).id)
    filled.closed_round(*[filled.ok(slot, 3.0 + slot, context_id=there) for slot in range(20)])
    told = data(evaluate("draft", "--seeds", 1, "--split", "by-host", "--json"))
    assert told["split"] == "by-host"
    assert told["figures"]["draft"]["rows"]["mean"] == (45 + 20) / 2


def test_snapshots_exports_and_data_directories_are_judged_alike(filled: Filled, tmp_path: Path) -> None:
    here = data(evaluate("draft", "--seeds", 1, "--json"))
    filled.exported(tmp_path / "out")
    for words in (
        ("--snapshot", here["snapshot"]),
        ("--data", tmp_path / "out"),
        ("--data", tmp_path / "out" / "measurements.parquet"),
        ("--data", tmp_path),  # where mallorn.db lies
        ("--op", "matmul"),
    ):
        there = data(evaluate("draft", "--seeds", 1, "--json", *words))
        assert there["figures"] == here["figures"], words


def test_a_model_or_split_that_is_not_there_is_told_the_known_ones() -> None:
    refused(evaluate("crystal-ball"), "unknown cost_model", "xgboost")
    refused(evaluate("draft", "--split", "by-luck"), "there is no split", "by-task")


def test_rows_that_a_split_cannot_part_are_explained() -> None:
    refused(evaluate("draft", "--split", "by-network"), "of 1 network", "--split within-task")
    refused(evaluate("draft", "--split", "by-target"), "of 1 target", "--split within-task")
    refused(evaluate("draft", "--split", "by-host"), "of 1 host", "--split within-task")


def test_a_handful_of_rows_is_too_few(tmp_path: Path) -> None:
    file = tmp_path / "few.parquet"
    write_tasks(file, [made_up(1)], {})
    words = evaluate("draft", "--data", file, "--split", "within-task")
    refused(words, "too few for this split", "measure more")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    refused(evaluate("draft", "--data", tmp_path / "gone.parquet"), "there is no")
    refused(evaluate("draft", "--data", tmp_path / "nowhere"), "there is no dataset")
    refused(evaluate("draft", "--snapshot", "gone"), "there is no snapshot gone")
    refused(evaluate("draft", "--op", "gone"), "the dataset has no rows of gone")


def test_a_filter_of_files_is_refused(filled: Filled, tmp_path: Path) -> None:
    filled.exported(tmp_path / "out")
    refused(evaluate("draft", "--data", tmp_path / "out", "--op", "matmul"), "is read as a whole")
    refused(evaluate("draft", "--snapshot", "x", "--op", "matmul"), "its own filter")
