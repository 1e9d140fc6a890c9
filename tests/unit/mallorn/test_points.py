"""The table of a range's points, as commands print it."""

from mallorn.core.values.finish_report import ModelLatency, PointTimes
from mallorn.wording.describe_results import POINT_COLUMNS
from mallorn.wording.format_values import Cell


def timed(us: float) -> ModelLatency:
    return ModelLatency(median=us, low=us, high=us)


def printed(point: PointTimes) -> list[Cell]:
    return [column.of(point) for column in POINT_COLUMNS]


def test_a_point_is_told_with_its_sizes_and_its_calls_a_second() -> None:
    latency_us = {"tuned": timed(20_000.0), "onnxruntime": timed(40_000.0)}
    point = PointTimes(sizes={"sequence": 1, "past": 64}, latency_us=latency_us)
    assert printed(point) == ["sequence=1 past=64", "20.000 ms", "50.0", "40.000 ms"]


def test_fast_calls_have_no_fraction() -> None:
    assert printed(PointTimes(sizes={"n": 1}, latency_us={"tuned": timed(250.0)}))[2] == "4,000"


def test_what_was_not_timed_is_told_as_such() -> None:
    assert printed(PointTimes(sizes={"n": 1}, latency_us={"tuned": None})) == ["n=1", "-", "", "-"]
