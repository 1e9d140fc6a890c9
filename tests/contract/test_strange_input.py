"""Whatever is sent, the answer is one of ours: a listed status in the one shape, and never a 500."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.coordinator import Coordinator

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NASTY = ["%00", "a%00b", "%ED%A0%80", "..%2F..", "%F0%9F%8C%B3", "x" * 5000, "'; drop table jobs --", "%"]

QUERIES = {
    "/records": ("workload", "target", "cursor", "job", "limit"),
    "/schedules": ("workload", "target", "beaten", "cursor"),
    "/schedules/lookup": ("workload", "target", "operator", "shape", "dtype"),
    "/fleet/activity": ("minutes",),
    "/jobs": ("state", "archived", "cursor", "name", "label", "model", "owner", "created_after"),
    "/models": ("cursor",),
}


def assert_ours(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    if answer.is_error:
        assert sorted(answer.json()) == ["detail", "error", "hint", "request_id"]


@pytest.fixture
def valid(coordinator: Coordinator) -> dict[str, Any]:
    """A request that is accepted as it stands."""
    return {"model_id": coordinator.upload(), "target": {"kind": "llvm", "num-cores": 2}, "trials": 1}


def test_strange_ids_are_not_found_or_refused(coordinator: Coordinator) -> None:
    for name in NASTY:
        for path in (
            "/jobs/{}",
            "/jobs/{}/tasks",
            "/jobs/{}/rounds",
            "/jobs/{}/events",
            "/models/{}",
            "/schedules/{}",
        ):
            answer = coordinator.http.get(path.format(name))
            assert answer.status_code in (404, 422), (path, name)
            assert_ours(answer)
        for verb in ("pause", "resume", "bench", "cancel", "archive", "unarchive"):
            assert_ours(coordinator.http.post(f"/jobs/{name}/{verb}"))
        for noun in ("jobs", "models"):
            assert_ours(coordinator.http.delete(f"/{noun}/{name}"))


def test_strange_queries_find_nothing_or_are_refused(coordinator: Coordinator) -> None:
    for value in NASTY:
        for path, names in QUERIES.items():
            for name in names:
                assert_ours(coordinator.http.get(f"{path}?{name}={value}"))
        assert_ours(coordinator.http.put(f"/models?name={value}", content=b"x"))


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    field=st.sampled_from(
        ["model_id", "target", "trials", "minutes", "seed", "name", "priority", "labels", "options"]
    ),
    value=json_values,
)
def test_a_field_may_hold_anything(
    coordinator: Coordinator, valid: dict[str, Any], field: str, value: object
) -> None:
    body = json.dumps({**valid, field: value}).encode()
    headers = {"Content-Type": "application/json"}
    assert_ours(coordinator.http.post("/jobs", content=body, headers=headers))


def test_texts_that_no_database_stores_are_refused(coordinator: Coordinator, valid: dict[str, Any]) -> None:
    for changes in (
        {"name": "a\0b"},
        {"name": "\ud800"},
        {"target": {"kind": "llvm", "num-cores": 2, "mcpu": "\0"}},
        {"target": {"kind": "llvm", "num-cores": 2, "vector-width": float("inf")}},
        {"options": {"input_shapes": {"x\0": [1]}}},
    ):
        body = json.dumps({**valid, **changes}).encode()
        answer = coordinator.http.post("/jobs", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, changes
        assert_ours(answer)
