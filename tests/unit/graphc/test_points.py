"""Which sizes of a range are tuned."""

from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.workers.tvm.network.extract_tasks_of_range import (
    MOST_POINTS,
    choose_geometric_sizes,
    choose_points_to_tune,
)

BOUNDS = st.tuples(st.integers(1, 600), st.integers(0, 600)).map(lambda pair: [pair[0], sum(pair)])
RANGES = st.dictionaries(st.sampled_from("abc"), BOUNDS, min_size=1)


@given(RANGES)
def test_points_lie_in_the_range_and_the_last_has_room_for_all_of_it(ranges: dict[str, list[int]]) -> None:
    points = choose_points_to_tune(ranges)
    assert 1 <= len(points) <= MOST_POINTS
    assert len({tuple(point.items()) for point in points}) == len(points)
    assert points[-1] == {name: high for name, (_, high) in ranges.items()}
    assert all(low <= point[name] <= high for point in points for name, (low, high) in ranges.items())


@given(st.integers(1, 60), st.integers(0, 600), st.integers(2, 8))
def test_sizes_rise_from_the_least_to_the_largest(low: int, more: int, count: int) -> None:
    sizes = choose_geometric_sizes(low, low + more, count)
    assert (sizes[0], sizes[-1]) == (low, low + more)
    assert len(sizes) <= count
    assert all(one < other for one, other in pairwise(sizes))


def test_one_dimension_has_all_points_and_no_size_is_far_below_the_next() -> None:
    sizes = [point["length"] for point in choose_points_to_tune({"length": [16, 512]})]
    assert len(sizes) == MOST_POINTS
    assert max(high / low for low, high in pairwise(sizes)) < 2


def test_a_dimension_that_is_divided_leaves_points_to_the_other() -> None:
    ranges = {"batch": [1, 64], "length": [16, 512]}
    counts = {
        name: len({point[name] for point in choose_points_to_tune(ranges, divided=["batch"])})
        for name in ranges
    }
    assert counts["length"] > counts["batch"]
    assert prod(counts.values()) <= MOST_POINTS


def test_every_size_is_a_point_where_no_other_may_stand_in() -> None:
    points = choose_points_to_tune({"length": [5, 8]}, exact=["length"])
    assert [point["length"] for point in points] == [5, 6, 7, 8]


def test_more_of_them_than_points_are_refused() -> None:
    with pytest.raises(ValueError, match="9 sizes"):
        choose_points_to_tune({"length": [1, 9]}, exact=["length"])
