"""`mallorn costmodels`: versions are listed and shown, and a line is rolled back by name."""

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from db.repositories.cost_models import CostModels, NewCostModel
from db.repositories.targets import Targets
from mallorn.core.targets import parse_target
from tests.fixtures.answers import data
from tests.fixtures.coordinator import Coordinator, OwnedRows

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
LINE = "operator:matmul/xgboost"
OTHER_TARGET = '{"kind":"llvm","num-cores":4}'
Type = Callable[..., Result]


@pytest.fixture
def mallorn(coordinator: Coordinator) -> Type:
    runner = CliRunner(env={"MALLORN_URL": coordinator.url, "COLUMNS": "250"})
    return lambda *words: runner.invoke(app, ["costmodels", *words])


def add(owned: OwnedRows, target_id: int = 0, **metrics: Any) -> int:
    line = "operator:matmul", target_id or owned.target_id, "xgboost"
    new = NewCostModel(*line, 8, 8, {"groups": 2} | metrics, b"model")
    return owned.write(lambda session: CostModels(session).add(new).id)


def active(mallorn: Type) -> list[str]:
    return [row["full_name"] for row in data(mallorn("list", "--active", "--json"))]


def test_with_no_models_yet_the_way_to_some_is_told(mallorn: Type) -> None:
    result = mallorn("list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "mallorn pretrain" in result.stderr


def test_versions_are_listed_newest_first(mallorn: Type, owned: OwnedRows) -> None:
    add(owned), add(owned)
    lines = mallorn("list").stdout.splitlines()
    assert [line.split()[1:3] for line in lines[1:3]] == [[f"{LINE}@2", "yes"], [f"{LINE}@1", "no"]]
    assert [row["version"] for row in data(mallorn("list", "--limit", "1", "--json"))] == [2]


@pytest.mark.parametrize(("name", "told"), [("tlp", True), ("xgboost", False)])
def test_a_model_that_is_behind_is_listed_with_a_word_on_it(
    mallorn: Type, owned: OwnedRows, name: str, told: bool
) -> None:
    owned.write(
        lambda session: CostModels(session).add(
            NewCostModel("operator:matmul", owned.target_id, name, 8, 8, {"groups": 2}, b"model")
        )
    )
    assert ("behind MetaSchedule's own model" in mallorn("list").stderr) is told


def test_a_version_is_shown_by_id_by_name_and_by_line(mallorn: Type, owned: OwnedRows) -> None:
    first, second = add(owned), add(owned)
    assert data(mallorn("show", str(first), "--json"))["version"] == 1
    assert data(mallorn("show", f"{LINE}@1", "--json"))["id"] == first
    assert data(mallorn("show", LINE, "--json"))["id"] == second
    shown = mallorn("show", LINE).stdout
    assert f"{LINE}@2" in shown
    assert "groups" in shown


def test_a_version_shows_what_it_is_worth_on_every_split(mallorn: Type, owned: OwnedRows) -> None:
    splits = {"by-task": {"pairwise": 0.81, "peak_1": 0.9}, "within-task": {"pairwise": 0.62, "peak_1": 0.8}}
    add(owned, pairwise=0.81, split="by-task", splits=splits)
    facts = [line.split() for line in mallorn("show", LINE).stdout.splitlines()]
    assert ["pairwise", "0.81"] in facts
    assert ["pairwise", "within-task", "0.62"] in facts
    assert ["peak", "1", "within-task", "0.8"] in facts


def test_a_line_goes_back_one_version_at_a_time(mallorn: Type, owned: OwnedRows) -> None:
    for _ in range(3):
        add(owned)
    assert mallorn("rollback", LINE).stdout.strip() == f"{LINE}@2"
    assert mallorn("rollback", LINE).stdout.strip() == f"{LINE}@1"
    assert active(mallorn) == [f"{LINE}@1"]
    refused = mallorn("rollback", LINE)
    assert refused.exit_code == 1
    assert "has no version before it" in refused.stderr


def test_a_line_goes_to_the_version_that_is_named(mallorn: Type, owned: OwnedRows) -> None:
    first, *_ = [add(owned) for _ in range(3)]
    assert data(mallorn("rollback", f"{LINE}@1", "--json"))["active"]
    assert data(mallorn("rollback", str(first + 2), "--json"))["version"] == 3
    assert active(mallorn) == [f"{LINE}@3"]


def test_a_version_is_activated_by_name(mallorn: Type, owned: OwnedRows) -> None:
    add(owned), add(owned)
    assert mallorn("activate", f"{LINE}@1").stdout.strip() == f"{LINE}@1"
    assert active(mallorn) == [f"{LINE}@1"]


def test_a_name_that_two_targets_have_needs_its_target(mallorn: Type, owned: OwnedRows) -> None:
    there = owned.write(lambda session: Targets(session).ensure(parse_target(OTHER_TARGET)).id)
    add(owned), add(owned, there)
    refused = mallorn("show", f"{LINE}@1")
    assert refused.exit_code == 1
    assert "2 targets" in refused.stderr
    assert "--target" in refused.stderr
    assert data(mallorn("show", LINE, "--target", OTHER_TARGET, "--json"))["target"] == OTHER_TARGET


@pytest.mark.parametrize(
    "words", [("show", "operator:none/xgboost"), ("rollback", f"{LINE}@9"), ("show", "99")]
)
def test_a_model_that_is_not_there_is_named(mallorn: Type, words: tuple[str, ...]) -> None:
    result = mallorn(*words)
    assert result.exit_code == 1
    assert f"there is no cost model {words[1]}" in result.stderr
    assert "mallorn costmodels list" in result.stderr
