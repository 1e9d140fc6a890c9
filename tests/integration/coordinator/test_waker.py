"""Messages to a real broker, and what happens while it is away."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from celery import Celery

from mallorn.core import queues
from mallorn.core.errors import Unavailable
from mallorn.core.states import JobState
from mallorn.services.coordinator.web.app_parts import Waker
from mallorn.stack.supervised_process import broker_answers
from mallorn.stack.valkey import broker_url, valkey_command
from tests.fixtures.coordinator import IMPORTERS, NATIVES, Start
from tests.fixtures.waiting import wait_for


@pytest.fixture
def socket() -> Iterator[Path]:
    # A unix socket's path ends at about 100 bytes: pytest's own directories are too deep.
    with tempfile.TemporaryDirectory(prefix="mallorn-") as folder:
        yield Path(folder) / "valkey"


@contextmanager
def broker(socket: Path, *words: str) -> Iterator[None]:
    process = subprocess.Popen([*valkey_command(socket), *words], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: broker_answers(socket), "the broker")
        yield
    finally:
        process.kill()
        process.wait()
        socket.unlink(missing_ok=True)


def waiting(socket: Path, queue: str) -> list[str]:
    """The names of the tasks in a queue, taken out."""
    with Celery(broker=broker_url(socket), set_as_current=False).connection_for_read() as connection:
        channel = connection.channel()
        found = []
        while message := channel.basic_get(queue, no_ack=True):
            found.append(str(message.headers["task"]))
        return found


def test_a_message_reaches_the_queue_that_serves_its_task(socket: Path) -> None:
    waker = Waker(broker_url(socket))
    with broker(socket):
        waker.ping()
        waker.wake_for_job(JobState.QUEUED, "j", '{"kind":"llvm"}')
        waker.wake_for_job(JobState.TUNING, "j", '{"kind":"llvm"}')
        waker.wake_for_job(JobState.FINISHING, "j", '{"kind":"llvm"}')
        assert waiting(socket, IMPORTERS) == waiting(socket, NATIVES) == [queues.WORK]
        assert waiting(socket, queues.CONTROL) == [queues.PLAN]
        waker.close()


def test_a_broker_that_went_away_and_came_back_is_used_again(
    socket: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waker = Waker(broker_url(socket))
    with broker(socket):
        waker.wake(queues.PLAN, "first")
    waker.wake(queues.PLAN, "lost")
    assert "it begins later" in caplog.text
    with pytest.raises(Unavailable, match="broker"):
        waker.ping()
    with broker(socket):
        waker.wake(queues.PLAN, "second")
        waker.ping()
        assert waiting(socket, queues.CONTROL) == [queues.PLAN]
        waker.close()


NOBODY = ("--replicaof", "127.0.0.1 1")
FULL = ("--maxmemory", "1")


@pytest.mark.parametrize("words", [NOBODY, FULL], ids=["it follows another", "it is full"])
def test_a_job_is_taken_while_the_broker_takes_no_message(
    start: Start, socket: Path, words: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = start(redis_url=broker_url(socket))
    with broker(socket, *words):
        assert coordinator.submit().status_code == 201
    assert "it begins later" in caplog.text


def test_a_job_is_taken_while_the_broker_is_away(start: Start, socket: Path) -> None:
    assert start(redis_url=broker_url(socket)).submit().status_code == 201
