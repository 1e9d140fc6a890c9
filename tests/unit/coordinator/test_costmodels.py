"""Versions of cost models over HTTP: all of them are shown, and an earlier one can be made the active one."""

from collections.abc import Callable
from typing import Any

import pytest

from mallorn.core.targets import parse_target
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.targets import Targets
from tests.fixtures.coordinator import Coordinator, OwnedRows

FAMILY = "operator:matmul"
OTHER_TARGET = '{"kind":"llvm","num-cores":4}'
Add = Callable[..., int]


@pytest.fixture
def add(owned: OwnedRows) -> Add:
    """Stores the next version of a line, trained on ten rows more than the one before; gives its id."""

    def go(family: str = FAMILY, name: str = "xgboost", target_id: int = 0, **changes: Any) -> int:
        target_id = target_id or owned.target_id

        def store(session: Any) -> int:
            head = CostModels(session).head(family, target_id, name)
            rows, parent = (head.rows + 10, head.id) if head else (10, None)
            fields = {"metrics": {"pairwise": 0.8}, "blob": b"model", "parent_id": parent} | changes
            return CostModels(session).add(NewCostModel(family, target_id, name, rows, rows, **fields)).id

        return owned.write(store)

    return go


def items(coordinator: Coordinator, **params: Any) -> list[dict[str, Any]]:
    answer = coordinator.http.get("/costmodels", params=params)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def activate(coordinator: Coordinator, version_id: int) -> dict[str, Any]:
    answer = coordinator.http.post(f"/costmodels/{version_id}/activate")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_every_version_is_listed_and_the_newest_is_active(coordinator: Coordinator, add: Add) -> None:
    first, second = add(), add(snapshot="rows-1")
    found = items(coordinator)
    assert [row["id"] for row in found] == [second, first]
    assert [row["active"] for row in found] == [True, False]
    assert [row["full_name"] for row in found] == [f"{FAMILY}/xgboost@2", f"{FAMILY}/xgboost@1"]
    newest = found[0]
    assert (newest["parent_id"], newest["parent"]) == (first, f"{FAMILY}/xgboost@1")
    assert (newest["snapshot"], newest["metrics"]["pairwise"], newest["rows"]) == ("rows-1", 0.8, 20)
    assert coordinator.http.get(f"/costmodels/{second}").json() == newest
    assert "blob" not in newest


def test_filters_narrow_the_list(coordinator: Coordinator, owned: OwnedRows, add: Add) -> None:
    there = owned.write(lambda session: Targets(session).ensure(parse_target(OTHER_TARGET)).id)
    first, second = add(), add()
    conv, forest, far = add(family="operator:conv2d"), add(name="forest"), add(target_id=there)
    for params, expected in [
        ({"family": FAMILY, "name": "xgboost", "active": True}, [far, second]),
        ({"family": FAMILY, "version": 1}, [far, forest, first]),
        ({"active": False}, [first]),
        ({"target": OTHER_TARGET}, [far]),
        ({"name": "xgboost", "family": "operator:conv2d"}, [conv]),
        ({"family": "operator:none"}, []),
    ]:
        assert [row["id"] for row in items(coordinator, **params)] == expected, params


def test_versions_come_in_pages(coordinator: Coordinator, add: Add) -> None:
    ids = [add() for _ in range(3)]
    first = coordinator.http.get("/costmodels", params={"limit": 2}).json()
    rest = items(coordinator, limit=2, cursor=first["next_cursor"])
    assert [row["id"] for row in [*first["items"], *rest]] == ids[::-1]


def test_going_back_changes_what_is_active_and_keeps_the_rest(coordinator: Coordinator, add: Add) -> None:
    first, second, third = add(), add(), add()
    bystander = add(name="forest")
    assert activate(coordinator, first)["active"]
    active = {row["id"]: row["active"] for row in items(coordinator)}
    assert active == {first: True, second: False, third: False, bystander: True}
    assert activate(coordinator, first)["id"] == first, "a second time changes nothing"
    assert activate(coordinator, third)["active"], "and the way back is open"


def test_training_goes_on_from_the_version_that_was_gone_back_to(coordinator: Coordinator, add: Add) -> None:
    first, _ = add(), add()
    activate(coordinator, first)
    third = coordinator.http.get(f"/costmodels/{add()}").json()
    assert (third["version"], third["parent_id"], third["active"]) == (3, first, True)


def test_going_back_is_not_undone_by_the_next_refit(
    coordinator: Coordinator, owned: OwnedRows, add: Add
) -> None:
    first, _ = add(), add()
    activate(coordinator, first)
    head = owned.read(lambda session: CostModels(session).head(FAMILY, owned.target_id, "xgboost"))
    assert head is not None
    assert (head.id, head.version) == (first, 1)
    assert head.rows == head.seen_upto == 20, "rows of the version that was given up count as seen"


def test_a_round_that_has_begun_keeps_its_version(
    coordinator: Coordinator, owned: OwnedRows, add: Add
) -> None:
    first, second = add(), add()
    round_id, _ = owned.claimed_round()
    owned.write(lambda session: Rounds(session).store_inputs(round_id, second))
    activate(coordinator, first)
    assert owned.read(lambda session: Rounds(session).get(round_id)).cost_model_id == second
    shown = coordinator.http.get(f"/jobs/{owned.job_id}/rounds").json()["items"][0]
    assert (shown["cost_model"], shown["cost_model_version"]) == (f"{FAMILY}/xgboost@2", 2)


@pytest.mark.parametrize(("method", "path"), [("GET", "/costmodels/7"), ("POST", "/costmodels/7/activate")])
def test_a_version_that_is_not_there_is_named(coordinator: Coordinator, method: str, path: str) -> None:
    answer = coordinator.http.request(method, path)
    assert answer.status_code == 404
    assert answer.json()["detail"] == "there is no cost model 7"
    assert answer.json()["hint"] == "mallorn costmodels list"
