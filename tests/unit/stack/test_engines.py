"""Timing engines in turn: who is called when, and how often."""

from typing import Any

import pytest

from mallorn.commands import engines
from mallorn.commands.engines import MOST_CALLS, time_in_turn

Calls = list[tuple[str, int]]


class Engine:
    """Answers like an engine's process whose every call takes the same time."""

    def __init__(self, name: str, latency_us: float, calls: Calls) -> None:
        self._name = name
        self._latency_us = latency_us
        self._calls = calls

    def call(self, method: str, timeout_sec: float, /, **params: Any) -> Any:
        assert method == "time_bursts"
        self._calls.append((self._name, params["number"]))
        return [self._latency_us] * params["bursts"]


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "REST_SEC", 0.0)


def test_engines_take_turns_burst_by_burst() -> None:
    calls: Calls = []
    time_in_turn({name: Engine(name, 1e5, calls) for name in ("tuned", "onnxruntime")}, rounds=2)
    assert [name for name, _ in calls[2:]] == ["tuned", "onnxruntime", "tuned", "onnxruntime"]


def test_a_fast_model_is_called_more_often_a_burst_than_a_slow_one() -> None:
    calls: Calls = []
    time_in_turn({"fast": Engine("fast", 1.0, calls), "slow": Engine("slow", 1e9, calls)}, rounds=1)
    assert calls[2:] == [("fast", MOST_CALLS), ("slow", 3)]


def test_the_median_and_the_range_of_the_bursts_are_told() -> None:
    timing = engines.Timing((5.0, 1.0, 2.0)).as_json()
    assert timing == {"median": 2.0, "low": 1.0, "high": 5.0}
