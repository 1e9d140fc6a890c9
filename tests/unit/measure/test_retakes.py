"""Looking for quiet moments costs a share of a round, and never the chance of a second look."""

import pytest

from mallorn.core.job_options import EvaluatorOptions
from mallorn.workers.measure import run_timeout_and_retakes as run_timeout
from mallorn.workers.measure.run_timeout_and_retakes import Retakes


class Clock:
    def __init__(self) -> None:
        self.sec = 0.0

    def monotonic(self) -> float:
        return self.sec


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(run_timeout, "time", clock)
    return clock


def test_every_candidate_may_be_timed_once_more(clock: Clock) -> None:
    budget = Retakes(EvaluatorOptions(repeat=2, min_repeat_ms=100))
    budget.charge_lost_time(60.0)
    assert budget.left_sec() == pytest.approx(0.2)


def test_a_round_lasts_twice_as_long_at_most(clock: Clock) -> None:
    budget, work_sec, lost_sec = Retakes(EvaluatorOptions(min_repeat_ms=0)), 0.0, 0.0
    for _ in range(50):
        work_sec += 1.0
        clock.sec += 1.0
        left_sec = budget.left_sec()
        budget.charge_lost_time(left_sec)
        clock.sec += left_sec
        lost_sec += left_sec
    assert lost_sec == pytest.approx(work_sec, rel=0.1)
