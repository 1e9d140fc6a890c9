"""Times that a device cannot have measured are failures of their candidates, whatever it says."""

from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.workers.tvm import runner_child
from mallorn.workers.tvm.runner_child import ImpossibleTime, check_times


def told(times: list[float]) -> Any:
    """A device that tells these times."""

    def run(artifact: Path, key: str, timeout_sec: float, work: Callable[[Any], list[float]]) -> list[float]:
        return times

    return SimpleNamespace(run=run, close=lambda: None)


@pytest.mark.parametrize("time_us", [0.0, -1.0, nan, inf, -inf, 1e18])
def test_an_impossible_time_is_a_failed_run(time_us: float) -> None:
    end = runner_child.run_library(told([1e-3, time_us]), "a.so", "key", 10.0, lambda _: [])
    assert (end.outcome, end.run_us) == (Outcome.RUN_ERROR, ())
    assert "the device reports" in end.error


def test_possible_times_are_taken() -> None:
    end = runner_child.run_library(told([1e-3, 2e-3]), "a.so", "key", 10.0, lambda _: [])
    assert (end.outcome, end.run_us) == (Outcome.OK, (1e-3, 2e-3))


def test_no_run_is_longer_than_the_wait_for_it() -> None:
    check_times([10.0], elapsed_us=10.0)
    with pytest.raises(ImpossibleTime, match="came after 10 us"):
        check_times([11.0], elapsed_us=10.0)
