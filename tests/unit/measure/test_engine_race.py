"""Timing engines in turn: who runs when, how often, and who stands still meanwhile."""

from typing import Any

import pytest

from mallorn.core.values.finish_report import ModelLatency
from mallorn.results.speedup import median_confidence_interval
from mallorn.workers.subprocesses.errors import ChildTimeout
from mallorn.workers.whole_model.interleaved_timing import MOST_CALLS, time_interleaved


class Engine:
    """Answers like an engine's process whose every call takes the same time; tells what was done to it."""

    def __init__(self, name: str, latency_us: float, done: list[tuple[str, Any]]) -> None:
        self._name = name
        self._latency_us = latency_us
        self._done = done

    def time_bursts(self, bursts: int, number: int) -> list[float]:
        self._done.append((self._name, number))
        return [self._latency_us] * bursts

    def suspend(self) -> None:
        self._done.append((self._name, "suspended"))

    def resume(self) -> None:
        self._done.append((self._name, "resumed"))

    def kill(self) -> None:
        self._done.append((self._name, "killed"))


class Hanging(Engine):
    def time_bursts(self, bursts: int, number: int) -> list[float]:
        raise ChildTimeout("it took too long")


def raced(passes: int, **latencies_us: float) -> list[tuple[str, Any]]:
    done: list[tuple[str, Any]] = []
    time_interleaved({name: Engine(name, latency, done) for name, latency in latencies_us.items()}, passes)
    return done


def test_only_one_engine_runs_at_any_time() -> None:
    running = {"tuned", "onnxruntime"}
    for name, what in raced(3, tuned=100.0, onnxruntime=80.0):
        if what == "suspended":
            running.remove(name)
        elif what == "resumed":
            running.add(name)
        else:
            assert running == {name}
    assert running == set()


def test_engines_take_turns_burst_by_burst() -> None:
    bursts = [name for name, what in raced(2, a=10.0, b=20.0) if isinstance(what, int)]
    assert bursts == ["a", "b"] * 3  # once to find out how many calls make a burst, then twice in earnest


def test_a_fast_model_is_called_more_often_a_burst_than_a_slow_one() -> None:
    calls = [entry for entry in raced(1, fast=1.0, slow=9e4) if isinstance(entry[1], int)]
    assert calls[2:] == [("fast", MOST_CALLS), ("slow", 1)]


def test_an_engine_far_behind_is_timed_once() -> None:
    names = [name for name, what in raced(4, fast=1e3, crawling=2e6) if isinstance(what, int)]
    assert names.count("crawling") == 1
    assert names.count("fast") == 5


def test_an_engine_that_takes_seconds_is_timed_like_others_unless_another_is_far_faster() -> None:
    names = [name for name, what in raced(4, large=2e6, larger=3e6) if isinstance(what, int)]
    assert names.count("large") == names.count("larger") == 5


def test_an_engine_that_hangs_is_killed_and_told() -> None:
    done: list[tuple[str, Any]] = []
    with pytest.raises(ChildTimeout):
        time_interleaved({"hanging": Hanging("hanging", 1.0, done)})
    assert done[-1] == ("hanging", "killed")


def test_every_engine_gets_its_median_its_interval_and_its_bursts() -> None:
    timings = time_interleaved({"a": Engine("a", 5.0, [])}, passes=3)
    assert timings == {"a": ModelLatency(median=5.0, low=5.0, high=5.0, bursts=[5.0] * 3)}


@pytest.mark.parametrize(
    ("times_us", "expected"),
    [([3.0], (3.0, 3.0)), ([5, 1, 3], (1, 5)), (range(100), (40, 59))],
)
def test_the_interval_of_a_median_narrows_with_the_number_of_times(
    times_us: Any, expected: tuple[float, float]
) -> None:
    assert median_confidence_interval(times_us) == expected
