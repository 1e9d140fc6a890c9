"""What a process of each kind can do in the whole sandbox equals the list of docs/reference/sandbox.md."""

import json
import os
import subprocess
import sys
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from mallorn.workers.sandbox.sandbox import WHOLE
from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support
from mallorn.workers.sandbox.seccomp import ALLOWED, GPU, PROGRAMS, SPECIAL
from tests.contract.reference.sandbox import KINDS, Kind, allowed_calls
from tests.fixtures.system_calls import CALLS

ROOT = Path(__file__).resolve().parents[2]
LEVEL = probe_sandbox_support("best-effort")
READABLE = ("/etc/passwd", "/etc/hosts", "/proc/self/status", "/proc/meminfo", "/dev/pts", "/usr")
USABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def places(outside: Path) -> list[str]:
    """Files and folders outside the room; no device whose opening alone has an effect."""
    (outside / "secret").write_text("secret")
    folders = ("/", "/root", "/home", "/var", "/var/log", "/tmp", "/run", "/boot", "/srv", "/mnt", "/etc")
    of_others = [f"/proc/{pid}/{name}" for pid in (1, os.getpid()) for name in ("environ", "mem", "maps")]
    secrets = ["/etc/shadow", *glob("/etc/ssh/*"), str(Path.home()), str(outside), str(outside / "secret")]
    own = ("fd", "stdin", "stdout", "stderr")  # links to the process's own descriptors
    nodes = [node for node in glob("/dev/*") if "watchdog" not in node and Path(node).name not in own]
    sockets = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if " /" in line]
    wanted = [*folders, *of_others, *secrets, *nodes, *sockets, *READABLE, *USABLE]
    return sorted({place for place in wanted if os.path.lexists(place)})


def tried(kind: Kind, room: Path, outside: Path) -> dict[str, Any]:
    spec = {name: value for name, value in kind._asdict().items() if name != "reads"} | {"room": str(room)}
    command = [sys.executable, "-P", "-m", "tests.fixtures.system_calls"]
    said = subprocess.run(
        [*command, json.dumps(spec), json.dumps(places(outside))],
        env={"PATH": os.environ["PATH"], "HOME": str(Path.home()), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        start_new_session=True,
    )
    found: dict[str, Any] = json.loads(said.stdout)
    return found


@pytest.mark.skipif(LEVEL != WHOLE, reason=f"the sandbox of this kernel is {LEVEL}")
@pytest.mark.parametrize("name", KINDS)
def test_a_process_can_do_what_the_list_says_and_nothing_else(name: str, tmp_path: Path) -> None:
    kind, room, outside = KINDS[name], tmp_path / "room", tmp_path / "outside"
    room.mkdir()
    outside.mkdir()
    found = tried(kind, room, outside)
    assert found["level"] == WHOLE
    refused = {call for call, error in found["outcomes"].items() if error == "EPERM"}
    made = set(found["outcomes"]) - refused - set(SPECIAL)
    print(f"{name} reads {found['reads']}, writes {found['writes']}, calls {sorted(made)}")
    assert made == allowed_calls(kind) & set(found["outcomes"])
    assert found["newer"] == ["ENOSYS", "ENOSYS"]
    assert set(found["reads"]) == {place for place in (*READABLE, *USABLE) if os.path.lexists(place)}
    assert set(found["writes"]) == {place for place in USABLE if os.path.lexists(place)}
    judged = {call: found["outcomes"][call] for call in SPECIAL}
    fails = {"clone": "EPERM", "clone3": "ENOSYS", "prlimit64": "EPERM", "prctl": "EPERM", "sendto": "EPERM"}
    assert fails.items() <= judged.items()
    assert judged["connect"] == ("" if kind.takes_sockets else "EPERM")


def test_the_list_names_each_call_once_and_by_its_numbers() -> None:
    tables = (ALLOWED, PROGRAMS, GPU, SPECIAL)
    assert sum(map(len, tables)) == len({name for table in tables for name in table})
    assert {
        name: tuple(numbers) for table in tables for name, numbers in table.items()
    }.items() <= CALLS.items()
