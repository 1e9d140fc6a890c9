"""Whatever a session sends to its device: one line for each candidate, and nothing without a bound."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mallorn.workers.device import session_channel
from mallorn.workers.device.session_channel import DeviceLink, SessionMonitor


class Session:
    """A session that says what a test has it say, and its device."""

    def __init__(self, log: Path) -> None:
        self.monitor = SessionMonitor(log, ())
        self.end = self.monitor._session_end.dup()
        self.output_fd = os.dup(self.monitor._session_output.fileno())
        self.monitor.pid = os.getpid()

    def read(self) -> None:
        """Have the device read all that was said so far."""
        for number in self.monitor.descriptors():
            while self.monitor.read_once(number):
                pass


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    made = Session(tmp_path / "executions.log")
    yield made
    made.end.close()
    os.close(made.output_fd)
    made.monitor.close()
    signal.signal(signal.SIGALRM, before)


def test_a_candidate_is_logged_before_its_session_goes_on(session: Session, tmp_path: Path) -> None:
    lines: list[str] = []

    def begin() -> None:
        DeviceLink(session.end).begin_candidate("key", 60.0)
        lines.extend((tmp_path / "executions.log").read_text().splitlines())

    thread = threading.Thread(target=begin)
    thread.start()
    while thread.is_alive():
        session.read()
    [line] = lines
    assert line.split("\t")[1:] == ["key", str(os.getpid())]
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60
    session.end.send(b"E")
    session.read()
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_forged_line_is_one_line_of_this_session(session: Session, tmp_path: Path) -> None:
    session.end.send(b"B1 key\t1\n0.0\tanother\t1\n\x1b[2J" + b"x" * 5000)
    session.read()
    [line] = (tmp_path / "executions.log").read_text().splitlines()
    assert len(line) < 1200
    assert line.isprintable() or line.count("\t") == 2
    assert line.endswith(f"\t{os.getpid()}")


@pytest.mark.parametrize("message", [b"Bnan k", b"B-1 k", b"Binf k", b"B", b"B1e400 k"])
def test_a_deadline_that_is_none_ends_the_session(session: Session, message: bytes) -> None:
    session.end.send(message)
    session.read()
    assert session.monitor.fault.startswith("the session broke its protocol")


def test_a_session_that_says_too_much_or_hangs_up_is_ended(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_channel, "MESSAGES_BYTES", 3)
    for _ in range(3):
        session.end.send(b"E")
        session.read()
    assert not session.monitor.fault
    session.end.send(b"E")
    session.read()
    assert session.monitor.fault


def test_a_session_that_reads_no_answer_does_not_stop_its_device(session: Session) -> None:
    for _ in range(2000):  # more answers than the socket holds
        session.end.send(b"E")
        session.read()
    assert not session.monitor.fault


def test_a_session_that_closed_its_end_must_end(session: Session) -> None:
    session.end.shutdown(socket.SHUT_RDWR)
    session.read()
    assert "sent no messages" in session.monitor.fault


def test_the_cause_of_an_end_is_escaped_and_short(session: Session) -> None:
    session.end.send(b"Ea \x1b[2J GPU" + b"y" * 5000)
    session.read()
    assert session.monitor.cause.isprintable()
    assert len(session.monitor.cause) < 1100


def test_output_is_escaped_and_bounded(
    session: Session, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_channel, "OUTPUT_BYTES", 100)
    os.write(session.output_fd, b"\x1b]0;title\x07\nplain\n")
    session.read()
    assert [record.args for record in caplog.records] == [("'\\x1b]0;title\\x07'",), ("plain",)]
    os.write(session.output_fd, b"z" * 100)
    session.read()
    with pytest.raises(BrokenPipeError):
        os.write(session.output_fd, b"more")
    assert not session.monitor.fault


def test_a_log_that_cannot_be_written_is_no_fault_of_the_candidate(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "executions.log").mkdir()
    session.end.send(b"B1 key")
    session.read()
    assert "cannot be written" in session.monitor.fault
    assert session.monitor.is_host_fault
