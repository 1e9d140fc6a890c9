"""What stops a command that follows a job, and what whoever started it said shall not stop it."""

import os
import signal
from collections.abc import Iterator

import pytest

from mallorn.cli.tune_and_resume import interrupt_on_signals


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def test_a_closed_terminal_and_kill_are_ctrl_c(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
    with pytest.raises(KeyboardInterrupt), interrupt_on_signals():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == signal.SIG_DFL


def test_what_nohup_has_ignored_stays_ignored(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    with interrupt_on_signals():
        os.kill(os.getpid(), number)
        assert signal.getsignal(number) == signal.SIG_IGN
    assert signal.getsignal(number) == signal.SIG_IGN
