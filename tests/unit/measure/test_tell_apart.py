"""Two engines are timed in turn until their ratio is known to 3 %, for a bounded time."""

import random
from collections.abc import Callable

import pytest

from mallorn.core.values.finish_report import ModelLatency
from mallorn.results.speedup import ALIKE, Speedup, compare_with_rival
from mallorn.workers.whole_model import interleaved_timing
from mallorn.workers.whole_model.interleaved_timing import (
    BURST_US,
    MOST_PAIRS,
    PAIRS_SEC,
    time_interleaved,
    time_until_distinguishable,
)


class Clock:
    """A clock that only bursts move."""

    def __init__(self) -> None:
        self.now_sec = 0.0

    def monotonic(self) -> float:
        return self.now_sec


class Noisy:
    """An engine whose bursts take what `draw` says, and move the clock by all their calls."""

    def __init__(self, clock: Clock, draw: Callable[[], float]) -> None:
        self._clock = clock
        self._draw = draw

    def time_bursts(self, bursts: int, number: int) -> list[float]:
        us = self._draw()
        self._clock.now_sec += us * number / 1e6
        return [us]

    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def kill(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(interleaved_timing, "time", clock)
    return clock


def found(clock: Clock, ratio: float, spread: float, seed: int = 0) -> tuple[Speedup, float]:
    """The comparison with an onnxruntime that takes `ratio` times as long, and the seconds of the pairs."""
    drawn = random.Random(seed)
    engines = {
        name: Noisy(clock, lambda us=us: us * drawn.lognormvariate(0.0, spread))  # type: ignore[misc]
        for name, us in {"tuned": 1000.0, "onnxruntime": 1000.0 * ratio, "untuned": 9000.0}.items()
    }
    first = time_interleaved(engines)
    began_sec = clock.now_sec
    race = compare_with_rival(time_until_distinguishable(engines, first))
    assert race is not None
    return race, clock.now_sec - began_sec


@pytest.mark.parametrize("ratio", [1.5, 0.5])
def test_a_clear_difference_needs_no_further_pairs(clock: Clock, ratio: float) -> None:
    race, took_sec = found(clock, ratio, spread=0.02)
    assert (race.pairs, took_sec) == (5, 0.0)
    assert race.is_significant


def test_pairs_go_on_until_the_interval_tells_three_percent(clock: Clock) -> None:
    race, took_sec = found(clock, 1.0, spread=0.02)
    assert race.pairs in (10, 20, 40)
    assert race.precise
    assert race.high <= race.low * ALIKE
    assert took_sec < PAIRS_SEC


def test_on_a_restless_host_they_end_after_a_bounded_time_and_are_not_told_apart(clock: Clock) -> None:
    race, took_sec = found(clock, 1.02, spread=0.4)
    assert PAIRS_SEC < took_sec < PAIRS_SEC + 20 * BURST_US / 1e6
    assert not race.precise
    assert "not told apart" in race.full_text


def test_a_model_of_seconds_a_call_ends_with_the_pair_that_it_began(clock: Clock) -> None:
    drawn = random.Random(1)
    engines = {name: Noisy(clock, lambda: 8e6 * drawn.uniform(0.9, 1.1)) for name in ("tuned", "onnxruntime")}
    first = time_interleaved(engines)
    began_sec = clock.now_sec
    time_until_distinguishable(engines, first)
    assert clock.now_sec - began_sec < PAIRS_SEC + 2 * 8.8


def test_only_the_tuned_model_and_its_rival_are_timed_again(clock: Clock) -> None:
    drawn = random.Random(2)
    names = ("tuned", "onnxruntime", "untuned")
    engines = {name: Noisy(clock, lambda: drawn.uniform(950.0, 1050.0)) for name in names}
    first = time_interleaved(engines)
    later = time_until_distinguishable(engines, first)
    assert later["untuned"] == first["untuned"]
    assert len(later["tuned"].bursts) == len(later["onnxruntime"].bursts) > len(first["tuned"].bursts)


def test_bursts_too_short_to_fill_the_time_are_bounded_in_number(clock: Clock) -> None:
    drawn = random.Random(3)
    engines = {name: Noisy(clock, lambda: drawn.uniform(1.0, 2.0)) for name in ("tuned", "onnxruntime")}
    later = time_until_distinguishable(engines, time_interleaved(engines))
    assert len(later["tuned"].bursts) == MOST_PAIRS
    assert clock.now_sec < PAIRS_SEC


def test_a_model_without_a_rival_is_not_timed_again(clock: Clock) -> None:
    alone = {"tuned": ModelLatency(median=1, low=1, high=1, bursts=[1.0, 1.0])}
    assert time_until_distinguishable({"tuned": Noisy(clock, lambda: 1.0)}, alone) == alone


def test_the_interval_holds_the_true_ratio_as_often_as_it_says(clock: Clock) -> None:
    """Whoever looks at an interval often stops too early on a chance result; these looks are few."""
    for ratio in (1.0, 1.02, 1.06):
        races = [found(clock, ratio, spread=0.03, seed=seed)[0] for seed in range(200)]
        right = sum(race.low <= ratio <= race.high for race in races)
        assert right >= 0.9 * len(races), ratio
