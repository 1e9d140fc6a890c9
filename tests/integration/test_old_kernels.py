"""The sandbox on older kernels: this one is asked for no more than their Landlock has."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from mallorn.core.errors import HostFault
from mallorn.workers.sandbox.sandbox import BEST_EFFORT, OLD_KERNEL, REQUIRE, REQUIRE_FILES, WHOLE
from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support, require_sandbox_mode
from tests.fixtures.command_line import ROOT

LEVEL: Final = probe_sandbox_support(BEST_EFFORT)
needs_walls = pytest.mark.skipif(LEVEL != WHOLE, reason=f"the kernel here closes walls only {LEVEL}")

AS_ON_AN_OLD_KERNEL: Final = """
import json, os, socket, sys
from pathlib import Path
from mallorn.workers.sandbox import landlock
from mallorn.workers.sandbox.sandbox import SandboxSpec, enter_sandbox

room, outside, version = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
for folder in ("one", "two"):
    (room / folder).mkdir()
(room / "one" / "file").touch()
landlock.version = lambda: version
level = enter_sandbox(SandboxSpec(room, others=((str(outside / "readable"), landlock.READ),)))

def end(way):
    try:
        way()
    except OSError as error:
        return error.strerror
    return "done"

print(json.dumps({
    "level": level,
    "write in the room": end(lambda: (room / "made").write_text("x")),
    "read a readable file": end(lambda: (outside / "readable").read_text()),
    "move to another folder": end(lambda: os.rename(room / "one" / "file", room / "two" / "file")),
    "read a file": end(lambda: (outside / "secret").read_text()),
    "make a file": end(lambda: (outside / "made").write_text("x")),
    "remove a file": end(lambda: (outside / "secret").unlink()),
    "cut a file by its path": end(lambda: os.truncate(outside / "secret", 0)),
    "empty a file": end(lambda: os.close(os.open(outside / "secret", os.O_RDONLY | os.O_TRUNC))),
    "empty a readable file": end(lambda: os.close(os.open(outside / "readable", os.O_RDONLY | os.O_TRUNC))),
    "make a socket": end(lambda: socket.socket()),
    "signal the parent": end(lambda: os.kill(os.getppid(), 0)),
}))
"""


@needs_walls
@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_an_older_landlock_restricts_files_and_the_gaps_are_told(version: int, tmp_path: Path) -> None:
    room, outside = tmp_path / "room", tmp_path / "outside"
    room.mkdir()
    outside.mkdir()
    for name in ("secret", "readable"):
        (outside / name).write_text(name)
    env = {name: os.environ[name] for name in ("PATH", "HOME")} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", AS_ON_AN_OLD_KERNEL, str(room), str(outside), str(version)]
    printed = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120)
    ends: dict[str, str] = json.loads(printed.stdout)
    empties = version < 3
    level = f"without {OLD_KERNEL} (Landlock {version}, 6 has them): a program can end your other processes"
    denied = "Permission denied"
    assert ends == {
        "level": level + (", and empty files that it can read and you can write" if empties else ""),
        "write in the room": "done",
        "read a readable file": "done",
        "move to another folder": "Invalid cross-device link" if version == 1 else "done",
        "read a file": denied,
        "make a file": denied,
        "remove a file": denied,
        "cut a file by its path": "Operation not permitted" if empties else denied,
        "empty a file": denied,
        "empty a readable file": "done" if empties else denied,
        "make a socket": "Operation not permitted",
        "signal the parent": "done",
    }
    assert require_sandbox_mode(ends["level"], REQUIRE_FILES) == ends["level"]
    with pytest.raises(HostFault, match="all of it is required"):
        require_sandbox_mode(ends["level"], REQUIRE)


@pytest.mark.parametrize(
    "report",
    [
        "without Landlock (Function not implemented)",
        "without seccomp (Invalid argument)",
        f"without seccomp (Invalid argument); {OLD_KERNEL} (Landlock 4, 6 has them)",
        f"without walls around 1 of its threads, which started before; {OLD_KERNEL} (Landlock 4, 6 has them)",
        f"without {OLD_KERNEL} (Landlock 4, 6 has them); Landlock (Function not implemented)",
        "without all: it could not be tried",
    ],
)
def test_a_private_network_is_no_reason_to_go_without_walls_around_files_and_calls(report: str) -> None:
    with pytest.raises(HostFault, match="Landlock and seccomp are required") as refused:
        require_sandbox_mode(report, REQUIRE_FILES)
    assert "MALLORN_SANDBOX=best-effort" in refused.value.hint
    assert require_sandbox_mode(report, BEST_EFFORT) == report


def test_a_whole_sandbox_satisfies_every_mode() -> None:
    assert {require_sandbox_mode(WHOLE, mode) for mode in (REQUIRE, REQUIRE_FILES, BEST_EFFORT)} == {WHOLE}
