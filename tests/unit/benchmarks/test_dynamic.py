"""The benchmark of ranges: its sizes, what computes them, and its headline."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.dynamic import headline
from benchmarks.dynamic_sizes import computed, filled_up, spread
from mallorn.core.values.dynamic_shapes import Dynamic, Rule

RANGED = Dynamic(
    ranges={"n": [1, 10]},
    inputs={"x": ["n", 4]},
    points=[{"n": 1}, {"n": 4}, {"n": 10}],
    rules=[
        Rule(upto={"n": 1}, point=0),
        Rule(upto={"n": 4}, point=1),
        Rule(upto={"n": 8}, point=1, first="n"),
        Rule(upto={"n": 10}, point=2),
    ],
)


@given(st.integers(1, 50), st.integers(0, 500), st.integers(2, 80))
def test_sizes_go_from_the_least_to_the_largest_and_none_twice(low: int, more: int, count: int) -> None:
    found = [sizes["n"] for sizes in spread({"n": [low, low + more]}, count)]
    assert (found[0], found[-1]) == (low, low + more)
    assert found == sorted(set(found))
    assert len(found) == min(count, more + 1)


def test_the_points_that_compute_a_size_follow_the_rules() -> None:
    assert computed(RANGED, {"n": 3}) == [{"n": 4}]
    assert computed(RANGED, {"n": 7}) == [{"n": 4}, {"n": 4}]
    with pytest.raises(ValueError, match="no rule"):
        computed(RANGED, {"n": 11})


def test_what_is_filled_up_is_a_share_of_what_is_computed() -> None:
    assert filled_up([{"n": 4}], {"n": 3}) == 0.25
    assert filled_up([{"n": 4}, {"n": 4}], {"n": 8}) == 0


def test_the_headline_compares_where_both_were_timed() -> None:
    cells = [
        {"us": {"range": 10.0, "point": 8.0, "onnxruntime": 20.0}, "filled_up": 0.0, "bytes": 1e6},
        {"us": {"range": 10.0, "onnxruntime": 5.0}, "filled_up": 0.5, "bytes": 1e6},
    ]
    said = headline(cells)
    assert "over onnxruntime 1 (at most 2, 2 sizes)" in said
    assert "over point 1.25 (at most 1.25, 1 sizes)" in said
    assert "dispatch 2.0 us" in said
    assert said.endswith("filled up 25%")
