"""The walls around helper processes: every way out that is tried is barred, and without walls it is open."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures import escapes
from workers.sandbox.reach import reached
from workers.sandbox.walls import WHOLE

ROOT = Path(__file__).resolve().parents[2]
LEVEL = reached("best-effort")
needs_walls = pytest.mark.skipif(LEVEL != WHOLE, reason=f"the kernel here closes walls only {LEVEL}")
# Nobody but root can do these without walls, or they are done in a way that harms nobody: with nothing.
BARRED_ANYWAY = {
    "load a filter",
    "change the root",
    "mount",
    "change the clock",
    "change the host's name",
    "join a namespace",
    "count events",
    "handle faults",
    "keep a key",
    "go round the filter",
    "make a namespace of mounts",
    "make a namespace of networks",
    "make a namespace of users",
    "read a file through /proc of the parent",
    "trace the parent",
    "copy the parent's memory",
    "open the parent's memory",
    "take a file from the parent",
    "change how the parent is scheduled",
    "have more memory than there is",
    "read a file of the home",
    "signal the first process",
}
# They are refused in other words.
LIMITS = {
    "write a file that is too large": "File too large",
    "have more memory than there is": "Cannot allocate",
    "link a file to here": "Invalid cross-device link",
    "move a file to here": "Invalid cross-device link",
    "move a file out": "Invalid cross-device link",
}


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder of this process, and what listens there."""
    folder = tmp_path / "outside"
    (folder / "empty").mkdir(parents=True)
    for name in ("secret", "moved", "removed"):
        (folder / name).write_text("secret")
    with _unix(str(folder / "socket")):
        yield folder


def _unix(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    return listener


def tried(tmp_path: Path, outside: Path, names: set[str], *walls: str) -> dict[str, str]:
    """How each way ended, within a room of its own."""
    room = tmp_path / "room"
    room.mkdir()
    abstract = f"mallorn-test-{os.getpid()}"
    command = [sys.executable, "-P", "-m", "tests.fixtures.escapes", str(room), str(outside), *walls]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    with socket.create_server(("127.0.0.1", 0)) as tcp, _unix(f"\0{abstract}"):
        ways = sorted(names, key=list(escapes.ALL).index)
        known = {"ways": ways, "port": tcp.getsockname()[1], "abstract": abstract}
        (room / "told").write_text(json.dumps(known))
        said = subprocess.run(
            command, env=env, capture_output=True, text=True, check=True, timeout=120, start_new_session=True
        )
    told = json.loads(said.stdout)
    assert told["level"] == ("" if "none" in walls else WHOLE)
    ends: dict[str, str] = told["ends"]
    return ends


def barred(name: str, end: str) -> bool:
    return end.startswith("PermissionError") or (name in LIMITS and LIMITS[name] in end)


def test_without_walls_the_ways_are_open(tmp_path: Path, outside: Path) -> None:
    ways = set(escapes.ALL) - BARRED_ANYWAY
    assert len(ways) >= 45
    ends = tried(tmp_path, outside, ways, "none")
    assert {name: end for name, end in ends.items() if end != "escaped"} == {}


@needs_walls
@pytest.mark.parametrize(
    ("walls", "open_"),
    [
        pytest.param([], {}, id="of what runs candidates and models"),
        pytest.param(["spawns"], escapes.PROGRAMS, id="of what compiles"),
        pytest.param(["connects"], escapes.NETWORK, id="of what speaks to devices"),
    ],
)
def test_behind_walls_every_way_is_barred(
    tmp_path: Path, outside: Path, walls: list[str], open_: dict[str, object]
) -> None:
    ways = set(escapes.ALL) - set(open_)
    ends = tried(tmp_path, outside, ways, *walls)
    assert {name: end for name, end in ends.items() if not barred(name, end)} == {}
    assert (outside / "secret").read_text() == "secret"
    assert (outside / "removed").exists()


@needs_walls
def test_what_is_needed_stays_within_reach(tmp_path: Path, outside: Path) -> None:
    assert set(tried(tmp_path, outside, set(escapes.PROGRAMS), "spawns").values()) == {"escaped"}


@needs_walls
def test_who_speaks_to_devices_reaches_the_network(tmp_path: Path, outside: Path) -> None:
    ends = tried(tmp_path, outside, {"connect", "send a datagram"}, "connects")
    assert set(ends.values()) == {"escaped"}
