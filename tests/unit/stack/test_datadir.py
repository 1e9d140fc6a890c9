"""Who holds a data directory, and what becomes of paths that cannot be one."""

import errno
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from mallorn.core import address_checks
from mallorn.core.address_checks import NotYours
from mallorn.core.errors import InvalidRequest, StorageFull
from mallorn.core.host_id import host_folder, host_id
from mallorn.core.settings import Settings
from mallorn.stack.data_directory import DataDir, DataDirInUse, StackInfo
from mallorn.stack.process_specs import StackLayout, environment
from tests.fixtures.processes import UNTIL_KILLED, beside

INFO = StackInfo("http://127.0.0.1:1", 1, "redis+socket:///x", "127.0.0.1:2", until_unused=False)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDir]:
    directory = DataDir(tmp_path / "data")
    directory.create_directories()
    yield directory
    shutil.rmtree(directory.socket_directory, ignore_errors=True)  # left by a holder that was killed


@contextmanager
def another_process(data: DataDir, holding: str) -> Iterator[subprocess.Popen[str]]:
    """A process inside `data.locked(...)` or `data.used()`."""
    program = f"""
from pathlib import Path
from mallorn.stack.data_directory import DataDir
with DataDir(Path({str(data.path)!r})).{holding} as announce:
    if announce is not None:
        announce("http://127.0.0.1:8123")
    print("held", flush=True)
    {UNTIL_KILLED}
"""
    with beside(program) as (process, said):
        assert said == "held"
        yield process


def test_the_second_holder_is_told_who_the_first_is(data: DataDir) -> None:
    with (
        another_process(data, "hold_stack_lock()") as holder,
        pytest.raises(DataDirInUse) as refusal,
        data.hold_stack_lock(),
    ):
        pass
    assert f"pid {holder.pid}" in refusal.value.message
    assert "MALLORN_URL=http://127.0.0.1:8123" in refusal.value.hint


def test_a_stack_on_another_machine_is_named_and_neither_asked_nor_read_beside(
    data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with another_process(data, "hold_stack_lock()") as holder, data.publish_stack_info(INFO):
        assert data.read_running_stack() == INFO
        monkeypatch.setattr("mallorn.stack.data_directory.host_id", lambda: "another machine of this home")
        monkeypatch.setattr("mallorn.stack.data_directory.LOCK_PATIENCE_SEC", 0.1)
        for looked in (data.read_running_stack, data.is_locked, data.hold_stack_lock().__enter__):
            with pytest.raises(DataDirInUse, match=f"pid {holder.pid} on another machine") as refusal:
                looked()
            assert refusal.value.hint.startswith("ssh ")
        holder.kill()
        holder.wait()
        assert data.read_running_stack() is None  # what it signed is no lock


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_locks_is_refused(
    data: DataDir, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(
        "mallorn.stack.data_directory.fcntl.flock", Mock(side_effect=OSError(number, os.strerror(number)))
    )
    for looked in (data.is_locked, data.hold_stack_lock().__enter__):
        with pytest.raises(InvalidRequest, match=r"stack\.lock cannot be locked"):
            looked()


def test_a_killed_holder_holds_nothing(data: DataDir) -> None:
    with another_process(data, "hold_stack_lock()") as holder:
        assert data.is_locked()
        holder.kill()
        holder.wait()
        assert not data.is_locked()
    with data.hold_stack_lock() as announce:
        announce("y")
        signed = json.loads(data.lock_file.read_text())
        assert (signed["pid"], signed["url"], signed["host_id"]) == (os.getpid(), "y", host_id())


def test_users_are_counted_across_processes(data: DataDir) -> None:
    assert not data.has_users()
    with another_process(data, "hold_user_lock()"), data.hold_user_lock():
        assert data.has_users()
    assert not data.has_users()


def test_a_published_stack_can_be_read_until_it_ends(data: DataDir) -> None:
    with data.publish_stack_info(INFO):
        assert data.read_stack() == INFO
    assert data.read_stack() is None


def test_a_listener_of_another_user_at_a_stacks_address_is_not_its_service(
    data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        another_process(data, "hold_stack_lock()"),
        data.publish_stack_info(replace(INFO, url=f"http://127.0.0.1:{listener.getsockname()[1]}")),
    ):
        assert data.read_running_stack() is not None
        rows = address_checks.read_proc_net_rows  # a listener of another user, as the kernel lists it
        monkeypatch.setattr(
            address_checks,
            "read_proc_net_rows",
            lambda text: [[*row[:7], "4242", *row[8:]] for row in rows(text)],
        )
        with pytest.raises(NotYours, match="belongs to user 4242"):
            data.read_running_stack()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 1, "unknown": 2}'])
def test_a_torn_stack_file_is_no_stack(data: DataDir, text: str) -> None:
    data.stack_file.write_text(text)
    assert data.read_stack() is None


def test_what_a_dead_stack_published_is_gone_once_another_holds_the_directory(data: DataDir) -> None:
    data.stack_file.write_text("left behind")
    with data.hold_stack_lock():
        assert not data.stack_file.exists()


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidRequest, match="is not a directory"):
            DataDir(path).create_directories()


def test_a_path_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Path, "mkdir", Mock(side_effect=PermissionError(13, "Permission denied"))
    )  # root may write anywhere, so the refusal is made
    with pytest.raises(InvalidRequest, match="is not writable"):
        DataDir(tmp_path / "data").create_directories()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(StorageFull, match="No space left"):
        DataDir(tmp_path / "data").create_directories()


def test_the_key_is_private_and_made_once(data: DataDir) -> None:
    data.create_directories()
    key = data.key_file.read_text()
    assert data.key_file.stat().st_mode & 0o777 == 0o600
    data.create_directories()
    assert data.key_file.read_text() == key
    assert not list(data.path.glob("rpc-key-*"))


def test_a_disk_that_fills_up_leaves_no_half_of_a_key(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    data.key_file.unlink(missing_ok=True)
    monkeypatch.setattr(
        "mallorn.stack.data_directory.secrets.token_hex",
        Mock(side_effect=OSError(28, "No space left on device")),
    )
    with pytest.raises(StorageFull):
        data.create_directories()
    assert not data.key_file.exists()


def test_a_runtime_directory_that_others_may_enter_is_refused(data: DataDir) -> None:
    data.socket_directory.mkdir()
    data.socket_directory.chmod(0o755)
    with pytest.raises(InvalidRequest, match="private"), data.hold_stack_lock():
        pass


def test_a_new_directory_is_its_users_alone_and_one_of_a_group_stays_the_groups(
    data: DataDir, tmp_path: Path
) -> None:
    assert data.path.stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "of a group"
    shared.mkdir()
    shared.chmod(0o2775)
    DataDir(shared).create_directories()
    assert shared.stat().st_mode & 0o7777 == 0o2770


def test_temporary_files_of_the_parts_lie_beside_the_data_for_this_user_alone(data: DataDir) -> None:
    assert data.temporary_directory.parent == data.path
    assert data.temporary_directory.stat().st_mode & 0o777 == 0o700
    parts = environment(StackLayout(data, "127.0.0.1", 1, "127.0.0.1:2", workers=1), Settings())
    assert parts["TMPDIR"] == str(data.temporary_directory)
    assert parts["MALLORN_HOST_FOLDER"] == str(host_folder())


def test_the_runtime_directory_is_private_and_gone_with_the_stack(data: DataDir) -> None:
    with data.hold_stack_lock():
        assert data.socket_directory.stat().st_mode & 0o777 == 0o700
        (data.socket_directory / "broker.sock").touch()
    assert not data.socket_directory.exists()


def test_the_socket_path_stays_short_however_long_the_data_path(tmp_path: Path) -> None:
    assert len(str(DataDir(tmp_path / ("x" * 200)).socket_directory / "broker.sock")) < 100
