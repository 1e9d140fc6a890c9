"""The options of a job over HTTP: every one with its choices, default and bounds."""

from typing import Any

from mallorn.core.job_options import JobOptions
from mallorn.core.registry import list_names
from tests.fixtures.coordinator import Coordinator


def options(coordinator: Coordinator) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in coordinator.http.get("/options").json()["items"]}


def test_every_option_of_a_job_is_listed_with_its_default(coordinator: Coordinator) -> None:
    found = options(coordinator)
    assert {name: item["default"] for name, item in found.items()} == JobOptions().model_dump(mode="json")
    assert all(item["description"].endswith(".") for item in found.values())


def test_a_choice_names_all_that_is_registered(coordinator: Coordinator) -> None:
    search = options(coordinator)["search"]
    assert search["kind"] == "choice"
    assert search["choices"] == list_names("search")
    assert search["default"] in search["choices"]


def test_a_choice_of_few_names_them_in_their_order(coordinator: Coordinator) -> None:
    precision = options(coordinator)["precision"]
    assert (precision["kind"], precision["choices"]) == ("choice", ["float32", "bf16", "fp16", "tf32"])


def test_a_number_tells_its_bounds_and_whether_it_may_be_left_open(coordinator: Coordinator) -> None:
    found = options(coordinator)
    size, build = found["round_size"], found["build_timeout_sec"]
    assert (size["kind"], size["optional"], size["minimum"], size["maximum"]) == ("integer", True, 1, 64)
    assert (build["kind"], build["optional"], build["exclusive_minimum"], build["maximum"]) == (
        "number",
        False,
        0,
        600,
    )
    kinds = [found[name]["kind"] for name in ("only", "input_shapes", "evaluator", "private")]
    assert kinds == ["texts", "shapes", "object", "boolean"]
