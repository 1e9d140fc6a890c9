"""Walls are compared pass by pass, and neither side always goes first."""

import pytest

from benchmarks.walls import in_turn, told


def test_both_are_measured_in_every_pass_and_take_turns_at_going_first() -> None:
    asked: list[str] = []

    def measure(name: str) -> float:
        asked.append(name)
        return float(len(asked))

    found = in_turn(2, measure)
    assert asked == ["with", "without", "without", "with"]
    assert found == {"with": [1.0, 4.0], "without": [2.0, 3.0]}


def test_the_ratio_is_that_of_passes_so_that_a_slow_minute_counts_on_both_sides() -> None:
    said = told({"with": [10.0, 110.0, 10.0], "without": [10.0, 100.0, 10.0]})
    assert said["ratio"] == pytest.approx(1.0)
    assert (said["median_with"], said["median_without"]) == (10.0, 10.0)
    assert said["with"] == [10.0, 110.0, 10.0]
