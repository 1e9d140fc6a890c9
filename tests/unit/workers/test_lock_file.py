"""Two users lock on one file, whoever came first and with what umask; one that is closed is said to be."""

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mallorn.core.errors import HostFault
from mallorn.workers.host.host_lock import CoreLock, HostLock, lock_identity, open_lock
from tests.fixtures.users import NOBODY, SOMEBODY, as_user, only_root


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in which every user makes files and nobody deletes another's, as /tmp."""
    with TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


@pytest.fixture
def closed_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("closed_umask")
def test_a_lock_is_open_to_all_whatever_the_umask(shared: Path) -> None:
    for path in CoreLock(shared / "cores.lock").files():
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert {path.name for path in shared.iterdir()} == {"cores.lock", "cores.gate"}


def test_one_of_ours_that_was_closed_is_opened(shared: Path) -> None:
    path = shared / "cores.lock"
    path.touch(0o600)
    os.close(open_lock(path, 0o644))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@only_root
@pytest.mark.usefixtures("closed_umask")
def test_two_users_lock_on_one_file(shared: Path) -> None:
    cores = shared / "cores.lock"
    assert as_user(NOBODY, CoreLock(cores).files) == 0
    mine = CoreLock(cores)
    assert mine.lock_exclusively(0)
    assert as_user(SOMEBODY, lambda: _assert_taken(cores)) == 0
    mine.unlock()
    assert as_user(SOMEBODY, lambda: _assert_free(cores)) == 0


def _assert_taken(cores: Path) -> None:
    assert not CoreLock(cores).lock_exclusively(0)


def _assert_free(cores: Path) -> None:
    assert CoreLock(cores).lock_exclusively(0)


@only_root
def test_a_file_that_another_user_closed_is_named_with_the_way_out(shared: Path) -> None:
    cores = shared / "cores.lock"
    cores.with_suffix(".gate").touch(0o600)
    for work in (
        CoreLock(cores).files,
        CoreLock(cores).lock_shared,
        lambda: CoreLock(cores).lock_exclusively(0),
    ):
        assert as_user(NOBODY, lambda work=work: _assert_refused(work)) == 0


def _assert_refused(work: Callable[[], object]) -> None:
    with pytest.raises(HostFault, match=r"cores\.gate.* cannot be opened: Permission denied") as refusal:
        work()
    assert "chmod 644" in refusal.value.hint


def test_what_lies_at_the_name_is_no_trap(shared: Path) -> None:
    """A link would lead to another file, and who opens a pipe waits for its other end."""
    link, pipe, folder = shared / "link", shared / "pipe", shared / "folder"
    link.symlink_to(shared / "elsewhere")
    os.mkfifo(pipe)
    folder.mkdir()
    with pytest.raises(HostFault):
        open_lock(link, 0o644)
    assert not (shared / "elsewhere").exists()
    for path in (pipe, folder):
        first, second = open_lock(path, 0o644), open_lock(path, 0o644)
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(first)
        os.close(second)


def test_a_gate_that_was_taken_is_given_back_where_the_lock_is_closed(shared: Path) -> None:
    (shared / "cores.lock").symlink_to(shared / "elsewhere")
    for work in (
        lambda: CoreLock(shared / "cores.lock").lock_exclusively(0),
        CoreLock(shared / "cores.lock").lock_shared,
    ):
        with pytest.raises(HostFault):
            work()
    gate = open_lock(shared / "cores.gate", 0o644)
    fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(gate)


def test_a_lock_of_one_user_is_closed_to_others(shared: Path) -> None:
    with HostLock(shared).hold_shared():
        found = shared / f"mallorn-{os.getuid()}-host.lock"
        assert stat.S_IMODE(found.stat().st_mode) == 0o600


def test_locks_are_named_alike_exactly_where_they_exclude_each_other(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLORN_HOST_FOLDER", str(shared))
    ours = lock_identity()
    assert ours
    link = tmp_path / "another name of the same folder"
    link.symlink_to(shared)
    monkeypatch.setenv("MALLORN_HOST_FOLDER", str(link))
    assert lock_identity() == ours
    monkeypatch.setenv("MALLORN_HOST_FOLDER", str(tmp_path))
    assert lock_identity() not in ("", ours)
    monkeypatch.setenv("MALLORN_HOST_FOLDER", str(tmp_path / "no folder"))
    assert lock_identity() == ""
