"""Look-ups of schedules over HTTP: what fits, and in which field the nearest differ when nothing does."""

from typing import Any

import pytest
from sqlalchemy import delete, update

from mallorn.client.coordinator_client import Client
from mallorn.core.targets import parse_target
from mallorn.core.values.dataset import NearestSchedule
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import KEPT
from mallorn.db.tables import Measurement, Schedule, Task, Workload
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.schedules import promote

NHWC = ["TENSOR", "float32", [1, 56, 56, 64]]
OTHER = '{"kind":"llvm","mcpu":"znver4","num-cores":8}'


def shape(rows: OwnedRows, key: str, *args: Any, **changes: Any) -> None:
    values = {"args": {"args": list(args)}, **changes}
    rows.write(lambda session: session.execute(update(Workload).where(Workload.key == key).values(values)))


@pytest.fixture
def conv(owned: OwnedRows) -> OwnedRows:
    """A schedule of w0, a convolution; w1 has none."""
    promote(owned, "w0", 20.0)
    shape(owned, "w0", NHWC, op="conv2d")
    return owned


def fields(coordinator: Coordinator, **params: Any) -> dict[str, set[str]]:
    answer = coordinator.http.get("/schedules/lookup", params=params)
    assert answer.status_code == 200, answer.text
    nearest = [NearestSchedule.model_validate(item) for item in answer.json()["nearest"]]
    return {item.workload: set(item.differences) for item in nearest}


@pytest.mark.parametrize(
    "params",
    [{"operator": "conv2d"}, {"shape": "1x56x56x64"}, {"dtype": "float32"}, {"workload": "w0"}],
)
def test_what_fits_is_found(coordinator: Coordinator, conv: OwnedRows, params: dict[str, str]) -> None:
    answer = coordinator.http.get("/schedules/lookup", params=params).json()
    assert [item["workload"] for item in answer["found"]] == ["w0"]
    assert answer["nearest"] == []


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"operator": "pool"}, "operator"),
        ({"operator": "conv2d", "shape": "1x64x56x56"}, "layout"),
        ({"operator": "conv2d", "shape": "1x28x28x64"}, "shape"),
        ({"operator": "conv2d", "dtype": "int8"}, "dtype"),
        ({"operator": "conv2d", "target": OTHER}, "target"),
    ],
)
def test_a_miss_names_the_field_in_which_the_nearest_differs(
    coordinator: Coordinator, conv: OwnedRows, params: dict[str, str], field: str
) -> None:
    assert fields(coordinator, **params) == {"w0": {field}}


def test_a_shape_that_is_none_is_refused(coordinator: Coordinator, conv: OwnedRows) -> None:
    assert coordinator.http.get("/schedules/lookup", params={"shape": "1xN"}).status_code == 422


def test_what_only_another_owners_private_job_knows_is_not_near(
    coordinator: Coordinator, conv: OwnedRows
) -> None:
    eve = OwnedRows(coordinator.database, owner="eve")

    def hide(session: Any) -> None:
        session.execute(
            update(Task).where(Task.job_id == conv.job_id).values(workload_id=eve.workloads["w1"])
        )
        session.execute(update(Workload).where(Workload.key == "w0").values(kept_upto=KEPT))

    assert fields(coordinator, operator="conv2d", dtype="int8") == {"w0": {"dtype"}}
    conv.write(hide)
    assert "w0" not in fields(coordinator, operator="conv2d", dtype="int8")


def test_a_workload_that_was_not_measured_differs_from_the_nearest_by_its_own_fields(
    coordinator: Coordinator, conv: OwnedRows
) -> None:
    shape(conv, "w1", NHWC, op="conv2d", structure="other loops")
    assert fields(coordinator, workload="w1") == {"w0": {"graph pass"}}


def test_another_target_or_tvm_is_a_difference(coordinator: Coordinator, conv: OwnedRows) -> None:
    def move(session: Any) -> None:
        target = Targets(session).ensure(parse_target(OTHER))
        context = Contexts(session).ensure(target.id, "host", "0.26.0", 8, {})
        session.execute(update(Measurement).values(target_id=target.id, context_id=context.id))
        session.execute(delete(Schedule))

    conv.write(move)
    with Client(coordinator.url) as client:
        target = client.job(conv.job_id).status.target
    assert fields(coordinator, workload="w0", target=target) == {"w0": {"target", "TVM version"}}


def test_a_workload_that_is_measured_but_has_no_schedule_fits(
    coordinator: Coordinator, conv: OwnedRows
) -> None:
    conv.write(lambda session: session.execute(delete(Schedule)))
    assert fields(coordinator, workload="w0") == {"w0": set()}


def test_a_near_time_is_the_best_of_the_newest_context_not_of_all(
    coordinator: Coordinator, conv: OwnedRows
) -> None:
    def time_cold(session: Any) -> None:
        warm = Contexts(session).get(conv.context_id)
        cold = Contexts(session).ensure_like(warm, evaluator={"cache": "cold", "launch": "eager"})
        conv.context_id = cold.id
        session.execute(delete(Schedule))

    conv.write(time_cold)
    conv.closed_round(conv.ok(0, 50.0), conv.ok(1, 40.0))
    answer = coordinator.http.get("/schedules/lookup", params={"workload": "w0"}).json()
    assert [item["latency_us"] for item in answer["nearest"]] == [40.0]


def test_the_client_finds_schedules(coordinator: Coordinator, conv: OwnedRows) -> None:
    with Client(coordinator.url) as client:
        assert [item.workload for item in client.find_schedules("conv2d", ["1x56x56x64"]).found] == ["w0"]
        assert client.find_schedules("conv2d", ["1x56x56x64"], dtype="int8").nearest
