"""A library is kept for the next job with the same schedules, and for nothing else."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workers.finish import known_libraries
from workers.finish.known_libraries import KnownLibraries
from workers.interfaces.model_compiler import Compiled

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
    known = KnownLibraries(tmp_path / "libraries" / "model")
    assert not known
    known.put(winners("a", "b"), library, COMPILED)
    assert known
    copy = tmp_path / "copy.so"
    assert known.take(winners("a", "b"), copy) == COMPILED
    assert copy.read_bytes() == b"code"
    assert not copy.samefile(library)


def test_other_schedules_have_none(tmp_path: Path, library: Path) -> None:
    known = KnownLibraries(tmp_path / "libraries" / "model")
    known.put(winners("a", "b"), library, COMPILED)
    assert known.take(winners("a", "c"), tmp_path / "copy.so") is None
    assert known.take(winners("a"), tmp_path / "copy.so") is None


def test_the_one_that_was_used_last_goes_last(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_libraries, "MOST_BYTES", 8)
    known, other = (KnownLibraries(tmp_path / "libraries" / name) for name in ("model", "other"))
    for at, (held, trace) in enumerate([(known, "a"), (other, "b")]):
        held.put(winners(trace), library, COMPILED)
        for file in (held.folder).iterdir():
            os.utime(file, (at, at))
    assert known.take(winners("a"), tmp_path / "copy.so")
    other.put(winners("c"), library, COMPILED)
    assert known.take(winners("a"), tmp_path / "copy.so")
    assert other.take(winners("b"), tmp_path / "copy.so") is None
    assert other.take(winners("c"), tmp_path / "copy.so")
    assert len([*other.folder.iterdir()]) == 2


def test_a_folder_that_takes_nothing_is_no_error(tmp_path: Path, library: Path) -> None:
    (tmp_path / "libraries").write_text("in the way")
    known = KnownLibraries(tmp_path / "libraries" / "model")
    known.put(winners("a"), library, COMPILED)
    assert known.take(winners("a"), tmp_path / "copy.so") is None


def test_what_is_larger_than_all_may_be_is_not_kept(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_libraries, "MOST_BYTES", 3)
    known = KnownLibraries(tmp_path / "libraries" / "model")
    known.put(winners("a"), library, COMPILED)
    assert not known


def test_a_disk_that_fills_up_leaves_no_half(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_source: Path, copy: Path) -> None:
        copy.write_bytes(b"co")
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(known_libraries.shutil, "copyfile", full)
    known = KnownLibraries(tmp_path / "libraries" / "model")
    known.put(winners("a"), library, COMPILED)
    assert [*known.folder.iterdir()] == []


@pytest.mark.parametrize(("ending", "left"), [(".so", b"co"), (".so", bytes(4)), (".json", b"")])
def test_one_that_a_power_cut_tore_is_forgotten(
    tmp_path: Path, library: Path, ending: str, left: bytes
) -> None:
    known = KnownLibraries(tmp_path / "libraries" / "model")
    known.put(winners("a"), library, COMPILED)
    (torn,) = known.folder.glob(f"*{ending}")
    torn.write_bytes(left)
    assert known.take(winners("a"), tmp_path / "copy.so") is None
    known.put(winners("a"), library, COMPILED)
    assert known.take(winners("a"), tmp_path / "copy.so") == COMPILED
