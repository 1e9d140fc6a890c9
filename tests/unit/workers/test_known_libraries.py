"""A library is kept for the next job with the same schedules, and for nothing else."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mallorn.core.api_keys import OwnerAction
from mallorn.db.repositories.access_control import apply_owner_action
from mallorn.db.repositories.stored_files import Models
from mallorn.db.session import Database
from mallorn.workers.finish import compiled_library_cache
from mallorn.workers.finish.compiled_library_cache import (
    ABOUT,
    LIBRARY,
    KnownLibraries,
    remove_deleted_models,
)
from mallorn.workers.interfaces.model_compiler import Compiled
from tests.fixtures.processes import UNTIL_KILLED, beside

COMPILED = Compiled(1, 2, ["w1"], [], [], [], bytes=4, seconds=3.0)


def winners(*traces: str) -> Any:
    programs = [SimpleNamespace(program=SimpleNamespace(key=f"w{at}")) for at, _ in enumerate(traces)]
    return [SimpleNamespace(contest=each, trace=trace) for each, trace in zip(programs, traces, strict=True)]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "joined.so"
    path.write_bytes(b"code")
    return path


def test_what_was_put_is_taken_with_what_was_told_of_it(tmp_path: Path, library: Path) -> None:
    known = KnownLibraries(tmp_path / "libraries" / "model", "here")
    assert not known
    known.store_library(winners("a", "b"), library, COMPILED)
    assert known
    copy = tmp_path / "copy.so"
    assert known.copy_cached_library(winners("a", "b"), copy) == COMPILED
    assert copy.read_bytes() == b"code"
    assert not copy.samefile(library)


def test_other_schedules_have_none(tmp_path: Path, library: Path) -> None:
    known = KnownLibraries(tmp_path / "libraries" / "model", "here")
    known.store_library(winners("a", "b"), library, COMPILED)
    assert known.copy_cached_library(winners("a", "c"), tmp_path / "copy.so") is None
    assert known.copy_cached_library(winners("a"), tmp_path / "copy.so") is None


def test_the_one_that_was_used_last_goes_last(tmp_path: Path, library: Path) -> None:
    known, other = (KnownLibraries(tmp_path / "libraries" / name, "here", 8) for name in ("model", "other"))
    for at, (held, trace) in enumerate([(known, "a"), (other, "b")]):
        held.store_library(winners(trace), library, COMPILED)
        os.utime(held.entry_of(winners(trace)), (at, at))
    assert known.copy_cached_library(winners("a"), tmp_path / "copy.so")
    other.store_library(winners("c"), library, COMPILED)
    assert known.copy_cached_library(winners("a"), tmp_path / "copy.so")
    assert other.copy_cached_library(winners("b"), tmp_path / "copy.so") is None
    assert other.copy_cached_library(winners("c"), tmp_path / "copy.so")
    assert len([*other.folder.iterdir()]) == 1


def test_a_folder_that_takes_nothing_is_no_error(tmp_path: Path, library: Path) -> None:
    (tmp_path / "libraries").write_text("in the way")
    known = KnownLibraries(tmp_path / "libraries" / "model", "here")
    known.store_library(winners("a"), library, COMPILED)
    assert known.copy_cached_library(winners("a"), tmp_path / "copy.so") is None


def test_what_is_larger_than_all_may_be_is_not_kept(tmp_path: Path, library: Path) -> None:
    known = KnownLibraries(tmp_path / "libraries" / "model", "here", 3)
    known.store_library(winners("a"), library, COMPILED)
    assert not known


def full_disk(*_given: object) -> str:
    raise OSError(28, "no space left on device")


def test_a_disk_that_fills_up_leaves_no_half(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownLibraries(tmp_path / "libraries" / "model", "here")
    with monkeypatch.context() as broken:
        broken.setattr(compiled_library_cache, "copy_out", full_disk)
        known.store_library(winners("a"), library, COMPILED)
    assert [*(tmp_path / "libraries").rglob("*")] == [known.folder]


@pytest.mark.parametrize(
    ("file", "left"), [(LIBRARY, b"co"), (LIBRARY, bytes(4)), (ABOUT, b""), (LIBRARY, None), (ABOUT, None)]
)
def test_one_that_a_power_cut_tore_is_forgotten(
    tmp_path: Path, library: Path, file: str, left: bytes | None
) -> None:
    known = KnownLibraries(tmp_path / "libraries" / "model", "here")
    known.store_library(winners("a"), library, COMPILED)
    (torn,) = known.folder.glob(f"*/{file}")
    torn.unlink() if left is None else torn.write_bytes(left)
    assert known.copy_cached_library(winners("a"), tmp_path / "copy.so") is None
    assert not known
    known.store_library(winners("a"), library, COMPILED)
    assert known.copy_cached_library(winners("a"), tmp_path / "copy.so") == COMPILED


def test_a_host_that_cannot_copy_it_leaves_a_good_one(tmp_path: Path, library: Path) -> None:
    known = KnownLibraries(tmp_path / "libraries" / "model", "here")
    known.store_library(winners("a"), library, COMPILED)
    assert known.copy_cached_library(winners("a"), tmp_path / "missing" / "copy.so") is None
    assert known.copy_cached_library(winners("a"), tmp_path / "copy.so") == COMPILED


def test_one_that_failed_its_check_is_not_taken_again(tmp_path: Path, library: Path) -> None:
    known = KnownLibraries(tmp_path / "libraries" / "model", "here")
    known.store_library(winners("a"), library, COMPILED)
    known.store_library(winners("b"), library, COMPILED)
    known.remove_library(winners("a"))
    assert known.copy_cached_library(winners("a"), tmp_path / "copy.so") is None
    assert known.copy_cached_library(winners("b"), tmp_path / "copy.so") == COMPILED


WRITER = """
from pathlib import Path
from mallorn.core.locked_folders import locked_folder
from mallorn.workers.finish.compiled_library_cache import DRAFT
with locked_folder(Path({root!r}), DRAFT) as draft:
    (draft / "library.so").write_text("half")
    print(draft, flush=True)
    """


def test_the_draft_of_a_killed_writer_is_removed_and_that_of_a_living_one_stays(
    tmp_path: Path, library: Path
) -> None:
    known = KnownLibraries(tmp_path / "libraries" / "model", "here")
    known.folder.mkdir(parents=True)
    with beside(WRITER.format(root=str(known.folder.parent)) + UNTIL_KILLED) as (process, draft):
        known.store_library(winners("a"), library, COMPILED)
        assert Path(draft, "library.so").exists()
        process.kill()
        process.wait()
    known.store_library(winners("b"), library, COMPILED)
    assert not Path(draft).exists()
    assert [*known.folder.parent.iterdir()] == [known.folder]


def test_two_workers_that_make_room_at_once_remove_what_is_too_much_and_no_more(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = KnownLibraries(tmp_path / "libraries" / "model", "here", 8)
    known.store_library(winners("a"), library, COMPILED)
    known.store_library(winners("b"), library, COMPILED)
    for at, trace in enumerate("ab"):
        os.utime(known.entry_of(winners(trace)), (at, at))
    remove = compiled_library_cache.remove_entry

    def others_first(entry: Path) -> None:
        remove(entry)
        remove(entry)

    monkeypatch.setattr(compiled_library_cache, "remove_entry", others_first)
    (known.folder / "here-gone").mkdir()  # another worker has just taken its library away
    known.store_library(winners("c"), library, COMPILED)
    assert caplog.text == ""
    assert known.copy_cached_library(winners("a"), tmp_path / "copy.so") is None
    assert known.copy_cached_library(winners("b"), tmp_path / "copy.so")
    assert known.copy_cached_library(winners("c"), tmp_path / "copy.so")


@pytest.mark.parametrize("plant", ["link", "hard link"])
def test_what_a_child_puts_in_its_place_is_not_kept(tmp_path: Path, plant: str) -> None:
    secret, planted = tmp_path / "secret", tmp_path / "planted.so"
    secret.write_bytes(b"code")
    planted.symlink_to(secret) if plant == "link" else planted.hardlink_to(secret)
    known = KnownLibraries(tmp_path / "libraries" / "model", "here")
    known.store_library(winners("a"), planted, COMPILED)
    assert not known


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    with Database(sqlite_url) as opened:
        yield opened


def kept_for(folder: Path, library: Path, model: str, owner: str) -> KnownLibraries:
    known = KnownLibraries(folder / "libraries" / compiled_library_cache.folder_name(model, owner), "here")
    known.store_library(winners("a"), library, COMPILED)
    assert known
    return known


def test_libraries_of_a_deleted_model_and_of_an_erased_owner_go_and_others_stay(
    tmp_path: Path, library: Path, database: Database
) -> None:
    with database.transaction() as session:
        for owner, model in (("ada", "a" * 64), ("ada", "b" * 64), ("bob", "a" * 64)):
            Models(session).add(model, owner, "m", 1)
    hers, other, his = (
        kept_for(tmp_path, library, "a" * 64, "ada"),
        kept_for(tmp_path, library, "b" * 64, "ada"),
        kept_for(tmp_path, library, "a" * 64, "bob"),
    )
    of_an_older_version = tmp_path / "libraries" / ("c" * 64)
    of_an_older_version.mkdir()
    remove_deleted_models(tmp_path, database)
    assert (bool(hers), bool(other), bool(his)) == (True, True, True)
    assert not of_an_older_version.exists()
    with database.transaction() as session:
        Models(session).delete("b" * 64, "ada")
    apply_owner_action(database, OwnerAction.ERASE, "bob")
    remove_deleted_models(tmp_path, database)
    assert [*(tmp_path / "libraries").iterdir()] == [hers.folder]


def test_no_library_and_no_folder_is_no_error(tmp_path: Path, database: Database) -> None:
    remove_deleted_models(tmp_path, database)
    assert not (tmp_path / "libraries").exists()
