"""`mallorn costmodels`: versions are listed and shown, and a line is rolled back by name."""

from functools import partial
from typing import Any

import pytest

from mallorn.core.targets import parse_target
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.targets import Targets
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.coordinator import OwnedRows

pytestmark = pytest.mark.usefixtures("named_coordinator")
LINE = "operator:matmul/xgboost"
OTHER_TARGET = '{"kind":"llvm","num-cores":4}'


costmodels = partial(mallorn, "costmodels")


def add(owned: OwnedRows, target_id: int = 0, **metrics: Any) -> int:
    line = "operator:matmul", target_id or owned.target_id, "xgboost"
    new = NewCostModel(*line, 8, 8, {"groups": 2} | metrics, b"model")
    return owned.write(lambda session: CostModels(session).add(new).id)


def active() -> list[str]:
    return [row["full_name"] for row in data(costmodels("list", "--active", "--json"))]


def test_with_no_models_yet_the_way_to_some_is_told() -> None:
    result = costmodels("list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "mallorn costmodels pretrain" in result.stderr


def test_versions_are_listed_newest_first(owned: OwnedRows) -> None:
    add(owned), add(owned)
    lines = costmodels("list").stdout.splitlines()
    assert [line.split()[1:3] for line in lines[1:3]] == [[f"{LINE}@2", "yes"], [f"{LINE}@1", "no"]]
    assert [row["version"] for row in data(costmodels("list", "--limit", "1", "--json"))] == [2]


def test_a_version_is_shown_by_id_by_name_and_by_line(owned: OwnedRows) -> None:
    first, second = add(owned), add(owned)
    assert data(costmodels("show", str(first), "--json"))["version"] == 1
    assert data(costmodels("show", f"{LINE}@1", "--json"))["id"] == first
    assert data(costmodels("show", LINE, "--json"))["id"] == second
    shown = costmodels("show", LINE).stdout
    assert f"{LINE}@2" in shown
    assert "groups" in shown


def test_a_version_shows_what_it_is_worth_on_every_split(owned: OwnedRows) -> None:
    splits = {"by-task": {"pairwise": 0.81, "peak_1": 0.9}, "within-task": {"pairwise": 0.62, "peak_1": 0.8}}
    add(owned, pairwise=0.81, split="by-task", splits=splits)
    facts = [line.split() for line in costmodels("show", LINE).stdout.splitlines()]
    assert ["pairwise", "0.81"] in facts
    assert ["pairwise", "within-task", "0.62"] in facts
    assert ["peak", "1", "within-task", "0.8"] in facts


def test_a_line_goes_back_one_version_at_a_time(owned: OwnedRows) -> None:
    for _ in range(3):
        add(owned)
    assert costmodels("rollback", LINE).stdout.strip() == f"{LINE}@2"
    assert costmodels("rollback", LINE).stdout.strip() == f"{LINE}@1"
    assert active() == [f"{LINE}@1"]
    refused(costmodels("rollback", LINE), "has no earlier version")


def test_a_line_goes_to_the_version_that_is_named(owned: OwnedRows) -> None:
    first, *_ = [add(owned) for _ in range(3)]
    assert data(costmodels("rollback", f"{LINE}@1", "--json"))["active"]
    assert data(costmodels("rollback", str(first + 2), "--json"))["version"] == 3
    assert active() == [f"{LINE}@3"]


def test_a_version_is_activated_by_name(owned: OwnedRows) -> None:
    add(owned), add(owned)
    assert costmodels("activate", f"{LINE}@1").stdout.strip() == f"{LINE}@1"
    assert active() == [f"{LINE}@1"]


def test_a_name_that_two_targets_have_needs_its_target(owned: OwnedRows) -> None:
    there = owned.write(lambda session: Targets(session).ensure(parse_target(OTHER_TARGET)).id)
    add(owned), add(owned, there)
    refused(costmodels("show", f"{LINE}@1"), "2 targets", "--target")
    assert data(costmodels("show", LINE, "--target", OTHER_TARGET, "--json"))["target"] == OTHER_TARGET


@pytest.mark.parametrize(
    "words", [("show", "operator:none/xgboost"), ("rollback", f"{LINE}@9"), ("show", "99")]
)
def test_a_model_that_is_not_there_is_named(words: tuple[str, ...]) -> None:
    refused(costmodels(*words), f"there is no cost model {words[1]}", "mallorn costmodels list")
