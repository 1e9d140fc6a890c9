"""A lease is renewed while the work goes on, and its loss is noticed."""

import threading

import pytest

from mallorn.core.errors import LeaseLost, Unavailable
from workers.lease import Lease
from workers.stopping import Stop, Stopping


class Renewals:
    """Answers renewals as told, the last answer for ever."""

    def __init__(self, *answers: bool | Exception) -> None:
        self._answers = list(answers)
        self.asked = 0
        self.done = threading.Event()

    def __call__(self) -> bool:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if len(self._answers) == 1:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


def hold(renewals: Renewals, rounds: int = 0) -> Lease:
    """A lease after all answers were given."""
    with Lease(renewals, lease_sec=0.06) as lease:
        assert renewals.done.wait(10)
        while renewals.asked < rounds and not lease.lost:
            threading.Event().wait(0.005)
    return lease


def test_a_lease_that_is_renewed_is_kept() -> None:
    hold(Renewals(True, True, True)).check()


def test_a_refused_renewal_loses_the_lease_for_good() -> None:
    renewals = Renewals(True, False)
    lease = hold(renewals, rounds=3)
    assert lease.lost
    assert renewals.asked == 2, "what is lost is not asked for again"
    with pytest.raises(LeaseLost):
        lease.check()


def test_a_database_that_does_not_answer_for_a_moment_costs_nothing() -> None:
    hold(Renewals(Unavailable(), Unavailable(), True)).check()


def test_a_database_that_never_answers_costs_the_lease() -> None:
    assert hold(Renewals(Unavailable()), rounds=20).lost


def test_a_stopping_worker_gives_up_what_is_still_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Stop()
    monkeypatch.setattr("workers.lease.STOP", stop)
    lease = Lease(lambda: True, 60)
    lease.check()
    stop.ask()
    with pytest.raises(Stopping):
        lease.check()
    assert not lease.lost
