"""A helper that the kernel really ends for want of memory says so; in a small control group."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fixtures.command_line import ROOT
from workers.children import memory

LIMIT_BYTES = 300 << 20
ASK = f"""
from tests.unit.children.faces import Misbehaving
from workers.children.errors import ChildOutOfMemory
with Misbehaving(name="graphs") as child:
    try:
        child.eat({2 * LIMIT_BYTES})
    except ChildOutOfMemory as error:
        print(error.message)
    print(child.echo("goes on"))
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group whose processes together get little memory."""
    try:
        made = memory._counter().parent / f"mallorn-test-{os.getpid()}"
        made.mkdir()
    except (OSError, StopIteration):
        pytest.skip("no control group can be made here; deaths are then told by their signal alone")
    try:
        bounded = False
        for name in ("memory.limit_in_bytes", "memory.max"):
            with suppress(OSError):
                (made / name).write_text(str(LIMIT_BYTES))
                bounded = True
        if not bounded:
            pytest.skip("this control group has no limit on memory")
        yield made
    finally:
        made.rmdir()


def test_the_kernels_memory_killer_is_told_from_other_kills(group: Path) -> None:
    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    done = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=ROOT,
        preexec_fn=enter,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "graphs took more memory than there is, and the kernel ended it",
        "goes on",
    ]


@pytest.mark.parametrize(
    ("groups", "file", "told"),
    [
        ("9:memory:/a/b\n0::/", "memory/a/b/memory.oom_control", "oom_kill_disable 0\noom_kill 4\n"),
        ("9:cpu,memory:/a\n", "memory/memory.oom_control", "under_oom 0\noom_kill 4\n"),
        ("0::/a.slice/b\n", "a.slice/b/memory.events", "oom 9\noom_kill 4\noom_group_kill 1\n"),
        ("0::/of/the/host\n", "memory.events", "oom_kill 4\n"),
    ],
    ids=["v1", "v1 in a container", "v2", "v2 in a container"],
)
def test_the_count_is_found(
    groups: str, file: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_text(groups)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(told)
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "MOUNT", tmp_path)
    memory._counter.cache_clear()
    try:
        assert memory.killed_for_memory() == 4
    finally:
        memory._counter.cache_clear()


def test_where_nobody_counts_there_was_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "none")
    memory._counter.cache_clear()
    try:
        assert memory.killed_for_memory() == 0
    finally:
        memory._counter.cache_clear()
