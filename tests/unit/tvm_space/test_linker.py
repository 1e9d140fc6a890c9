"""Linking finds what is installed, and says what is missing."""

import ctypes
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from mallorn.core.errors import HostFault, StorageFull
from mallorn.core.targets import NATIVE
from mallorn.workers.host.linker import (
    NoLinker,
    check_linking,
    link_command,
    link_shared,
    prepare_linking,
)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    link_command.cache_clear()
    yield
    link_command.cache_clear()


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    """An object file with a function `answer`."""
    source, built = tmp_path / "answer.c", tmp_path / "answer.o"
    source.write_text("int answer(void) { return 42; }")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    subprocess.run([compiler, "-fPIC", "-c", source, "-o", built], check=True)
    return built


def only(directory: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave one program on the PATH: a wrapper `name` around the compiler of this machine."""
    real = shutil.which("cc") or shutil.which("gcc")
    wrapper = directory / name
    wrapper.write_text(f'#!/bin/sh\nPATH=/usr/bin:/bin exec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv("CC", raising=False)


def test_objects_become_a_library(answer: Path, tmp_path: Path) -> None:
    link_shared(str(tmp_path / "a.so"), [str(answer)])
    assert ctypes.CDLL(str(tmp_path / "a.so")).answer() == 42


@pytest.mark.parametrize(("name", "linked"), [("cc", 1), ("ld", 0)])
def test_a_compiler_driver_links_once_before_a_candidates_time_runs(
    name: str, linked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, program = tmp_path / "log", tmp_path / name
    program.write_text(f"#!/bin/sh\necho linked >> {log}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    prepare_linking()
    assert (log.read_text().count("linked") if log.exists() else 0) == linked


def test_a_compiler_driver_serves_where_no_linker_is(
    answer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    only(bin_dir, "cc", monkeypatch)
    link_shared(str(tmp_path / "a.so"), [str(answer)])
    assert link_command()[0] == str(bin_dir / "cc")
    assert ctypes.CDLL(str(tmp_path / "a.so")).answer() == 42


def test_nothing_to_link_with_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(NoLinker) as caught:
        link_command()
    assert "install" in caught.value.hint


def test_linking_is_tried_before_any_candidate_is(tmp_path: Path) -> None:
    assert check_linking(tmp_path).split()[0] == link_command()[0]


def test_a_compiler_that_links_nothing_is_a_fault_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho no libraries today\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(HostFault, match="no libraries today"):
        check_linking(tmp_path)


def test_a_linker_that_is_gone_is_a_fault_of_the_host(
    answer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    only(bin_dir, "cc", monkeypatch)
    link_command(NATIVE)
    (bin_dir / "cc").unlink()
    with pytest.raises(HostFault, match="cannot run the linker"):
        link_shared(str(tmp_path / "a.so"), [str(answer)])


@pytest.mark.parametrize(
    ("number", "words", "hint"),
    [
        (errno.EMFILE, "too many open files", "ulimit -n"),
        (errno.ENFILE, "too many open files", "ulimit -n"),
        (errno.ENOMEM, "no more memory", "free"),
        (errno.EAGAIN, "cannot run the linker", "ulimit -a"),
    ],
)
def test_a_linker_that_is_there_is_not_to_be_installed_where_the_host_refuses_to_start_it(
    answer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str, hint: str
) -> None:
    monkeypatch.setattr(subprocess, "run", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(HostFault, match=words) as refused:
        link_shared(str(tmp_path / "a.so"), [str(answer)])
    assert hint in refused.value.hint
    assert "install" not in refused.value.hint


def test_a_disk_without_room_is_the_reason_whatever_the_linker_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.o"
    broken.write_text("cut short")
    monkeypatch.setattr("mallorn.workers.host.linker.LEAST_FREE_BYTES", 1 << 60)
    with pytest.raises(StorageFull, match="is full"):
        link_shared(str(tmp_path / "a.so"), [str(broken)])


def test_a_refusal_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.o"
    broken.write_text("this is no object")
    with pytest.raises(HostFault, match=r"broken\.o"):
        link_shared(str(tmp_path / "a.so"), [str(broken)])


def test_a_folder_from_which_nothing_can_be_loaded_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(HostFault, match="mounted noexec") as refused:
        check_linking(tmp_path)
    assert "TMPDIR" in refused.value.hint
