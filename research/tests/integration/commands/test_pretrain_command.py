"""`mallorn costmodels pretrain`, as it is typed."""

from functools import partial
from pathlib import Path

import pytest

from mallorn.db.migrate import check_table_version
from mallorn.db.repositories.cost_models import CostModelVersions
from mallorn.db.session import Database
from mallorn_research.pretraining import pretrain as bases
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.filled_dataset import Filled

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
pretrain = partial(mallorn, "costmodels", "pretrain")


@pytest.fixture(autouse=True)
def here(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the machine of a dataset of one operator."""
    monkeypatch.setenv("MALLORN_DATABASE_URL", filled.database.url)


def stored_bases(database: Database) -> list[str]:
    with database.session() as session:
        return [str(found.full_name) for found in CostModelVersions(session).page().items]


def test_a_base_is_fit_and_shown(enough: Filled) -> None:
    result = pretrain()
    assert result.exit_code == 0, result.stderr
    assert "base:matmul/xgboost@1" in result.stdout
    assert "from now on" in result.stderr
    assert stored_bases(enough.database) == ["base:matmul/xgboost@1"]


def test_a_base_that_is_no_better_than_chance_is_told_with_the_way_to_have_it(
    enough: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "WORTH_PAIRS", 1.01)
    result = pretrain()
    assert result.exit_code == 0, result.stderr
    assert "base:matmul/xgboost@1 is stored and not active: it orders " in result.stderr
    assert "mallorn costmodels activate base:matmul/xgboost@1 --target '{" in result.stderr
    assert "from now on" not in result.stderr
    [told] = data(pretrain("--json"))
    assert not told["active"]


def test_models_snapshots_and_filters_are_taken_by_name(enough: Filled) -> None:
    [first] = data(pretrain("draft", "--op", "matmul", "--json"))
    assert (first["model"], first["rows"], first["tasks"]) == ("base:matmul/draft@1", 45, 2)
    [second] = data(pretrain("draft", "--snapshot", first["snapshot"], "--json"))
    assert (second["model"], second["snapshot"]) == ("base:matmul/draft@2", first["snapshot"])


def test_a_base_may_learn_from_chosen_rows_alone(enough: Filled) -> None:
    [told] = data(pretrain("--choose", "0.8", "--json"))
    assert (told["rows"], told["available_rows"], told["training_rows"]) == (45, 45, 36)
    [all_of_them] = data(pretrain("--json"))
    assert "available_rows" not in all_of_them


@pytest.mark.parametrize("share", ["0", "-0.5", "1.5", "nan"])
def test_a_share_that_is_none_is_refused(enough: Filled, share: str) -> None:
    refused(
        pretrain("--choose", share),
        "a share of the rows must be above 0 and at most 1",
        "mallorn costmodels pretrain xgboost --choose 0.25",
    )
    assert not stored_bases(enough.database)


def test_a_base_for_another_target_learns_from_this_one(enough: Filled) -> None:
    other = '{"kind": "llvm", "num-cores": 64}'
    [told] = data(pretrain("draft", "--for", other, "--json"))
    assert (told["target"], told["rows"]) == ('{"kind":"llvm","num-cores":64}', 45)


def test_an_export_teaches_a_database_that_has_nothing(enough: Filled, tmp_path: Path) -> None:
    enough.exported(tmp_path / "out")
    told = data(pretrain("draft", "--from", tmp_path / "out", "--data", tmp_path / "new", "--json"))
    assert told[0]["model"] == "base:matmul/draft@1"
    fresh = Database(f"sqlite:///{tmp_path / 'new' / 'mallorn.db'}")
    check_table_version(fresh)
    assert stored_bases(fresh) == ["base:matmul/draft@1"]
    fresh.dispose()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "none of 1 operators has enough measurements"),
        (("crystal-ball",), "unknown cost_model"),
        (("--for", "llvm"), "a CPU target needs num-cores"),
        (("--op", "gone"), "the dataset has no rows of gone"),
        (("--from", "gone.parquet"), "there is no"),
        (("--from", "gone.parquet", "--op", "matmul"), "is used as a whole"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_stored(
    filled: Filled, words: tuple[str, ...], said: str
) -> None:
    refused(pretrain(*words), said)
    assert stored_bases(filled.database) == []
