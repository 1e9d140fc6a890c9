"""`mallorn costmodels`: versions are listed and shown, and a line is rolled back by name."""

from functools import partial
from typing import Any

import pytest

from mallorn.core.targets import parse_target
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.targets import Targets
from tests.fixtures.answers import Shell, data, mallorn, refused
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.kept import Kept

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


def test_versions_are_listed_shown_and_taken_back(owned: OwnedRows, shell: Shell, kept: Kept) -> None:
    shell.names["LINE"] = LINE
    shell("none yet", "costmodels list")
    splits = {"by-task": {"pairwise": 0.81, "peak_1": 0.9}, "within-task": {"pairwise": 0.62, "peak_1": 0.8}}
    first = add(owned)
    add(owned), add(owned, pairwise=0.81, split="by-task", splits=splits)
    shell("three versions", "costmodels list", "costmodels list --limit 1")
    shell("by name and by line, with what it is worth on each split", "costmodels show LINE")
    assert data(costmodels("show", str(first), "--json"))["version"] == 1
    assert data(costmodels("show", f"{LINE}@1", "--json"))["id"] == first
    shell("one version back at a time", *["costmodels rollback LINE"] * 3)
    assert active() == [f"{LINE}@1"]
    shell("activated by name", "costmodels activate LINE@2")
    assert active() == [f"{LINE}@2"]
    shell(
        "not there",
        *(f"costmodels {w}" for w in ("show operator:none/xgboost", "rollback LINE@9", "show 99")),
    )
    kept("costmodels", shell.texts)


def test_a_line_goes_to_the_version_that_is_named(owned: OwnedRows) -> None:
    first, *_ = [add(owned) for _ in range(3)]
    assert data(costmodels("rollback", f"{LINE}@1", "--json"))["active"]
    assert data(costmodels("rollback", str(first + 2), "--json"))["version"] == 3
    assert active() == [f"{LINE}@3"]


def test_a_name_that_two_targets_have_needs_its_target(owned: OwnedRows) -> None:
    there = owned.write(lambda session: Targets(session).ensure(parse_target(OTHER_TARGET)).id)
    add(owned), add(owned, there)
    refused(costmodels("show", f"{LINE}@1"), "2 targets", "--target")
    assert data(costmodels("show", LINE, "--target", OTHER_TARGET, "--json"))["target"] == OTHER_TARGET
