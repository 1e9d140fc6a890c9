"""A helper that the kernel really ends for want of memory says so; in a small control group."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mallorn.workers.subprocesses import cgroups
from tests.fixtures.command_line import ROOT
from tests.fixtures.control_groups import V2_MOUNT, MadeUp

V1 = {"memory": "/ cgroup cgroup rw,memory"}
DOCKER = {"memory": "/docker/c0 cgroup cgroup rw,memory"}

LIMIT_BYTES = 300 << 20
ASK = f"""
from tests.unit.children.faces import Misbehaving
from mallorn.workers.subprocesses.errors import ChildOutOfMemory
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
        made = cgroups.find_kill_counter().parent / f"mallorn-test-{os.getpid()}"
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
    ("membership", "mounts", "file", "told"),
    [
        ("9:memory:/a/b\n0::/", V1, "memory/a/b/memory.oom_control", "oom_kill_disable 0\noom_kill 4\n"),
        ("9:memory:/docker/c0\n", DOCKER, "memory/memory.oom_control", "under_oom 0\noom_kill 4\n"),
        ("0::/a.slice/b\n", V2_MOUNT, "a.slice/b/memory.events", "oom 9\noom_kill 4\noom_group_kill 1\n"),
        ("0::/of/the/host\n", V2_MOUNT, "memory.events", "oom_kill 4\n"),
    ],
    ids=["v1", "v1 in a container", "v2", "v2 in a container"],
)
def test_the_count_is_found(
    membership: str, mounts: dict[str, str], file: str, told: str, made_up_groups: MadeUp
) -> None:
    made_up_groups(membership, mounts, {file: told})
    cgroups.find_kill_counter.cache_clear()
    try:
        assert cgroups.count_memory_kills() == 4
    finally:
        cgroups.find_kill_counter.cache_clear()


def test_where_nobody_counts_there_was_none(made_up_groups: MadeUp) -> None:
    made_up_groups("", {}, {})
    cgroups.find_kill_counter.cache_clear()
    try:
        assert cgroups.count_memory_kills() == 0
    finally:
        cgroups.find_kill_counter.cache_clear()
