"""The curve as SVG, and the ticks of its axes."""

import pytest

from mallorn.report.chart import HEIGHT, SECONDS, TRIALS, WIDTH, chart, even_ticks, log_ticks, padded
from mallorn.results.best_so_far_curve import CurvePoint
from tests.fixtures.markup import Markup, assert_inert

POINTS = [CurvePoint(16, 10.0, 1000.0, 0), CurvePoint(32, 20.0, 1000.0, 1), CurvePoint(64, 75.0, 100.0, 2)]


def drawn(*args: object) -> Markup:
    svg = chart(*args)  # type: ignore[arg-type]
    assert svg is not None
    return assert_inert(svg)


def places(found: Markup, *names: str) -> list[float]:
    return [float(value or "") for name, value in found.attributes if name in names]


def test_a_dot_says_when_the_total_fell() -> None:
    text = drawn(POINTS, TRIALS).text
    assert "round 0: 1.000 ms after 16 trials, 0:10" in text
    assert "round 2: 100.0 us after 64 trials, 1:15" in text
    assert "round 1" not in text, "nothing was gained there"


def test_everything_is_inside_the_picture() -> None:
    found = drawn(POINTS, SECONDS, {"TVM, default build": 50_000.0, "onnxruntime": 90.0})
    assert all(0 <= x <= WIDTH for x in places(found, "x", "x1", "x2", "cx"))
    assert all(0 <= y <= HEIGHT for y in places(found, "y", "y1", "y2", "cy"))
    assert "off the picture: TVM, default build, 50.000 ms" in found.text
    assert "onnxruntime 90.0 us" in found.text


def test_a_line_that_lies_far_off_does_not_flatten_the_curve() -> None:
    alone, beside = (drawn(POINTS, TRIALS, {"naive": us} if us else {}) for us in (0.0, 50_000.0))
    assert places(alone, "cy") == places(beside, "cy")


def test_the_line_falls_in_steps() -> None:
    (path,) = [value or "" for name, value in drawn(POINTS, TRIALS).attributes if name == "d"]
    assert path.count("H") == path.count("V") == 2
    ends = [float(step.partition("V")[2]) for step in path.split("H")[1:]]
    assert ends[0] < ends[1], "down is faster"


def test_the_picture_has_a_name_for_those_who_do_not_see_it() -> None:
    said = "best weighted latency against trials: from 1.000 ms to 100.0 us"
    assert ("aria-label", said) in drawn(POINTS, TRIALS).attributes


def test_a_flat_line_and_one_without_time_are_drawn_too() -> None:
    drawn([CurvePoint(0, 0.0, 5.0), CurvePoint(0, 0.0, 5.0)], TRIALS)


def test_one_point_is_no_curve() -> None:
    assert chart(POINTS[:1], TRIALS) is None


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 64, [0, 20, 40, 60]), (0, 1000, [0, 200, 400, 600, 800, 1000]), (3, 3, [3])],
)
def test_even_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert even_ticks(low, high) == ticks


def test_logarithmic_ticks_are_few_however_wide_the_range() -> None:
    assert log_ticks(90, 1100) == [100, 200, 500, 1000]
    assert 2 <= len(log_ticks(1, 1e9)) <= 7


def test_a_narrow_range_has_even_ticks() -> None:
    assert log_ticks(10.3, 10.9) == pytest.approx([10.4, 10.6, 10.8])


def test_there_is_room_around_the_values() -> None:
    low, high = padded([100.0, 1000.0])
    assert low < 100 < 1000 < high
    low, high = padded([5.0])
    assert low < 5 < high
