"""A lease is renewed while the work goes on, and its loss is noticed."""

import logging

import pytest

from mallorn.core.errors import LeaseLost, StorageFull, Unavailable
from mallorn.core.log_setup import TextLines, log_facts
from mallorn.workers.process.lease_renewal import LeaseKeeper
from mallorn.workers.subprocesses.shutdown import Shutdown, ShutdownRequested
from tests.fixtures.waiting import wait_for


class Renewals:
    """Answers renewals as told, the last answer for ever."""

    def __init__(self, *answers: bool | Exception) -> None:
        self._answers = list(answers)
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def hold(renewals: Renewals, times: int) -> LeaseKeeper:
    """A lease that was held until it was renewed so often, or lost."""
    with LeaseKeeper(renewals, lease_sec=0.06) as lease:
        wait_for(lambda: renewals.asked >= times or lease.is_lost, f"{times} renewals")
    return lease


def test_a_lease_that_is_renewed_is_kept() -> None:
    hold(Renewals(True, True, True), times=3).raise_if_lost()


def test_a_refused_renewal_loses_the_lease_for_good() -> None:
    renewals = Renewals(True, False)
    lease = hold(renewals, times=3)
    assert lease.is_lost
    assert renewals.asked == 2, "what is lost is not asked for again"
    with pytest.raises(LeaseLost):
        lease.raise_if_lost()


@pytest.mark.parametrize("trouble", [Unavailable(), StorageFull(), KeyError("?")], ids=repr)
def test_a_database_in_trouble_for_a_moment_costs_nothing(trouble: Exception) -> None:
    hold(Renewals(trouble, trouble, True), times=3).raise_if_lost()


@pytest.mark.parametrize("trouble", [Unavailable(), StorageFull(), KeyError("?")], ids=repr)
def test_a_database_in_trouble_for_long_costs_the_lease(trouble: Exception) -> None:
    assert hold(Renewals(trouble), times=20).is_lost


def test_a_stopping_worker_gives_up_what_is_still_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Shutdown()
    monkeypatch.setattr("mallorn.workers.process.lease_renewal.STOP", stop)
    lease = LeaseKeeper(lambda: True, 60)
    lease.raise_if_lost()
    stop.request_stop()
    with pytest.raises(ShutdownRequested):
        lease.raise_if_lost()
    assert not lease.is_lost


def test_its_thread_logs_what_the_lease_is_about(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []
    written = TextLines("worker")

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(written.format(record))  # in the thread that logs

    kept = Kept()
    logging.getLogger("mallorn.workers.process.lease_renewal").addHandler(kept)
    try:
        with log_facts(job="1f", round=7):
            hold(Renewals(Unavailable("no database"), True), 2)
    finally:
        logging.getLogger("mallorn.workers.process.lease_renewal").removeHandler(kept)
    assert "no database (job=1f round=7)" in lines[0]
