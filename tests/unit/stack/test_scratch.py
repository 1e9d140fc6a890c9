"""What a killed part leaves in the temporary directory is swept by the next; what the living use stays."""

import os
import tempfile
from pathlib import Path

import pytest

from mallorn.core.host_id import host_folder
from mallorn.stack.temporary_files import PREFIX, create_process_folder, remove_abandoned_folders
from mallorn.workers.host.host_lock import CoreLock
from tests.fixtures.processes import UNTIL_KILLED, beside

HOLDING = """
import tempfile
from pathlib import Path
from mallorn.stack.temporary_files import create_process_folder
with create_process_folder("worker") as folder:
    (Path(tempfile.mkdtemp()) / "large").write_text("x")
    print(folder, flush=True)
    """


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory for this test and the processes that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MALLORN_HOST_FOLDER", "")  # so that what a part sets is taken back
    monkeypatch.delenv("MALLORN_HOST_FOLDER", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def killed_part() -> Path:
    """The folder of a part that got a SIGKILL."""
    with beside(HOLDING + UNTIL_KILLED) as (process, said):
        process.kill()
        process.wait()
    return Path(said)


def test_all_temporary_files_of_a_part_end_with_it(shared: Path) -> None:
    with create_process_folder("worker") as folder:
        made = Path(tempfile.mkdtemp())
        assert made.parent == folder == Path(os.environ["TMPDIR"])
    assert list(shared.iterdir()) == []
    assert Path(tempfile.gettempdir()) == shared


def test_what_processes_of_a_host_share_is_where_it_was(shared: Path) -> None:
    with create_process_folder("worker"):
        assert host_folder() == shared
        cores = CoreLock()
        assert cores.lock_exclusively(0)
        cores.unlock()
    assert {path.name for path in shared.iterdir()} == {"mallorn-cores.lock", "mallorn-cores.gate"}


def test_of_a_part_that_is_told_where_its_files_go_the_locks_stay_those_of_the_host(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "data" / "scratch"
    scratch.mkdir(parents=True)
    monkeypatch.setenv("MALLORN_HOST_FOLDER", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with create_process_folder("worker") as folder:
        assert folder.parent == scratch
        assert host_folder() == shared
        assert left_in(shared) == []
    assert list(scratch.iterdir()) == []


def left_in(place: Path) -> list[Path]:
    return list(place.glob(f"{PREFIX}*"))


def test_the_next_part_sweeps_what_a_killed_one_left() -> None:
    left = killed_part()
    assert list(left.rglob("large"))
    with create_process_folder("device"):
        assert not left.exists()


def test_what_a_living_part_uses_stays(shared: Path) -> None:
    with beside(HOLDING + UNTIL_KILLED) as (_process, said):
        remove_abandoned_folders(shared)
        assert list(Path(said).rglob("large"))
    remove_abandoned_folders(shared)
    assert not Path(said).exists()


def test_a_link_is_neither_followed_nor_removed(shared: Path, tmp_path: Path) -> None:
    kept = tmp_path / "precious"
    kept.mkdir()
    (kept / "file").touch()
    link = shared / f"{PREFIX}worker-x"
    link.symlink_to(kept)
    remove_abandoned_folders(shared)
    assert link.is_symlink()
    assert (kept / "file").exists()


def test_links_inside_a_left_folder_lead_nowhere(shared: Path, tmp_path: Path) -> None:
    kept = tmp_path / "precious"
    kept.mkdir()
    (kept / "file").touch()
    left = shared / f"{PREFIX}worker-x"
    left.mkdir()
    (left / "link").symlink_to(kept)
    remove_abandoned_folders(shared)
    assert not left.exists()
    assert (kept / "file").exists()


def test_folders_in_folders_beyond_counting_keep_no_part_from_starting(shared: Path) -> None:
    left = shared / f"{PREFIX}worker-x"
    left.mkdir()
    place = os.open(left, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    with create_process_folder("worker"):
        assert not left.exists()


def test_another_users_folder_stays(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = killed_part()
    monkeypatch.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
    remove_abandoned_folders(shared)
    assert left.exists()
