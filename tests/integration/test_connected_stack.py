"""The stack that `mallorn tune` starts: shared on one data directory, gone with its last user."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from mallorn.client.local_service import connected_stack
from mallorn.core.errors import Unavailable
from mallorn.core.settings import settings
from mallorn.stack.data_directory import DataDir
from tests.fixtures.command_line import python_path
from tests.fixtures.waiting import wait_for

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("MALLORN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", python_path())
    settings.cache_clear()
    yield
    settings.cache_clear()


def wait_until_unlocked(folder: Path) -> None:
    wait_for(lambda: not DataDir(folder).is_locked(), "the end of the stack")


@contextmanager
def another_user(data: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is connected to the stack on `data`."""
    program = f"""
from pathlib import Path
from mallorn.client.local_service import connected_stack
with connected_stack(None, None, Path({str(data)!r})) as stack:
    print(stack.data.read_stack().pid, flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_stack_is_shared_outlives_who_started_it_and_is_gone_with_its_last_user(tmp_path: Path) -> None:
    with another_user(tmp_path) as starter:
        pid = int(first_line(starter))
        with connected_stack(None, None, tmp_path) as stack:
            info = DataDir(tmp_path).read_stack()
            assert info is not None
            assert info.pid == pid
            wait_for(lambda: any(device.online for device in stack.api.devices()), "a device")
            starter.send_signal(signal.SIGKILL)
            starter.wait()
            time.sleep(1.0)  # time enough to notice, if it did
            assert psutil.pid_exists(pid)
            assert stack.api.devices() is not None
    wait_until_unlocked(tmp_path)


def test_a_stack_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "mallorn.db").write_text("this is no database, and must not be taken for one")
    with (
        pytest.raises(Unavailable, match=r"(?s)did not start.*(database|mallorn\.db)"),
        connected_stack(None, None, tmp_path),
    ):
        pass
    wait_until_unlocked(tmp_path)


def test_a_coordinator_that_was_named_is_not_replaced_by_one_of_ours(tmp_path: Path) -> None:
    with (
        connected_stack("http://127.0.0.1:9", None, tmp_path) as stack,
        pytest.raises(Unavailable, match="no coordinator answers"),
    ):
        stack.api.devices()
    assert not DataDir(tmp_path).lock_file.exists()
