"""The walls around helper processes: every way out that is tried is barred, and without walls it is open."""

import fnmatch
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from mallorn.kinds.cuda.device import cuda_device
from mallorn.kinds.cuda.device.cuda_device import CudaDevice
from mallorn.workers.device.device_kind import DeviceKind
from mallorn.workers.sandbox import system_paths
from mallorn.workers.sandbox.sandbox import WHOLE
from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support
from tests.fixtures import escapes
from tests.fixtures.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
LEVEL = probe_sandbox_support("best-effort")
needs_walls = pytest.mark.skipif(LEVEL != WHOLE, reason=f"the kernel here closes walls only {LEVEL}")
# What every process can do everywhere, unless walls bar it; some kernels and containers bar more.
OPEN_ANYWHERE = {
    "read a file",
    "read a file by a way up",
    "read a file through a link",
    "list a folder",
    "move a file out",
    "write a file",
    "cut a file",
    "make a file",
    "make a folder",
    "remove a file",
    "change a file's rights",
    "change a file's time",
    "connect",
    "listen",
    "reach a socket with a file",
    "send to a socket with a file",
    "send a message to a socket with a file",
    "reach a socket without a file",
    "read the parent's environment",
    "signal the parent",
    "fork",
    "run a shell",
    "run a program of one's own",
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
def outside() -> Iterator[Path]:
    """A folder of this process, and what listens there: a socket's path has to be short."""
    with tempfile.TemporaryDirectory(prefix="outside-") as made:
        folder = Path(made)
        (folder / "empty").mkdir()
        for name in ("secret", "moved", "removed"):
            (folder / name).write_text("secret")
        with _unix(str(folder / "socket")), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(str(folder / "datagrams"))
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
    env = {name: os.environ[name] for name in ("PATH", "HOME")} | {"PYTHONPATH": str(ROOT)}
    with socket.create_server(("127.0.0.1", 0)) as tcp, _unix(f"\0{abstract}"):
        ways = sorted(names, key=list(escapes.ALL | escapes.OWN).index)
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
    ends = tried(tmp_path, outside, set(escapes.ALL), "none")
    found = {name for name, end in ends.items() if end == "escaped"}
    assert found >= OPEN_ANYWHERE
    assert len(found) >= 40


@needs_walls
@pytest.mark.parametrize(
    ("walls", "open_"),
    [
        pytest.param([], (), id="of what runs candidates and models"),
        pytest.param(["spawns"], escapes.PROGRAMS, id="of what compiles"),
        pytest.param(["takes_sockets"], ["connect"], id="of what speaks to devices"),
        pytest.param(["drives_gpu"], (), id="of a session that has a GPU"),
    ],
)
def test_behind_walls_every_way_is_barred(
    tmp_path: Path, outside: Path, walls: list[str], open_: Iterable[str]
) -> None:
    ways = set(escapes.ALL) - set(open_)
    ends = tried(tmp_path, outside, ways, *walls)
    assert {name: end for name, end in ends.items() if not barred(name, end)} == {}
    assert (outside / "secret").read_text() == "secret"
    assert (outside / "removed").exists()


@needs_walls
def test_what_is_needed_stays_within_reach(tmp_path: Path, outside: Path) -> None:
    assert set(tried(tmp_path, outside, set(escapes.PROGRAMS), "spawns").values()) == {"escaped"}


SPEAKS = """
import ctypes, os, sys
from pathlib import Path
from mallorn.workers.sandbox.sandbox import SandboxSpec, enter_sandbox
libc = ctypes.CDLL(None)
enter_sandbox(SandboxSpec(Path(sys.argv[1]), takes_sockets=True))
os.dup2(int(sys.argv[2]), 0)
end = libc.socket(2, 1, 0)
assert libc.connect(end, (ctypes.c_char * 16)(2, 0, 1), 16) == 0
os.write(end, f"from descriptor {end}".encode())
"""


@needs_walls
def test_what_speaks_to_devices_has_only_the_sockets_that_it_is_given(tmp_path: Path) -> None:
    end, own_end = socket.socketpair()
    env = {name: os.environ[name] for name in ("PATH", "HOME")} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", SPEAKS, str(tmp_path), str(end.fileno())]
    with end, own_end:
        subprocess.run(command, env=env, check=True, timeout=120, pass_fds=[end.fileno()])
        assert own_end.recv(100) == b"from descriptor 0"


@needs_walls
def test_cudas_driver_gets_a_socket_that_leads_nowhere(tmp_path: Path, outside: Path) -> None:
    assert tried(tmp_path, outside, {"make a socket"}, "drives_gpu") == {"make a socket": "escaped"}


@needs_walls
def test_only_a_session_of_a_gpu_gets_its_nodes(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [f"/dev/{name}" for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "dri/card0")]
    monkeypatch.setattr(cuda_device, "glob", lambda pattern: fnmatch.filter(nodes, pattern))
    own = f"/proc/{os.getpid()}/task"
    assert sorted(path for path, _ in CudaDevice().paths("")) == sorted([*nodes[:3], own])
    assert list(DeviceKind().paths("")) == []
    assert not {str(path) for path, _ in system_paths.system_paths()} & {*nodes, "/dev/nvidia-caps"}
    assert tried(tmp_path, outside, {"write of itself in /proc"})["write of itself in /proc"] != "escaped"


def test_a_session_gets_the_node_of_its_own_gpu_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a GPU's node need not be its index."""
    for folder, uuid, minor in (("0000:01:00.0", "GPU-one", 1), ("0000:02:00.0", "GPU-two", 0)):
        file = tmp_path / folder / "information"
        file.parent.mkdir()
        file.write_text(f"Model: \t\t Made-up\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
    monkeypatch.setattr(cuda_device, "_FACTS", str(tmp_path))
    nodes = [f"/dev/{name}" for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")]
    glob = cuda_device.glob
    monkeypatch.setattr(
        cuda_device,
        "glob",
        lambda pattern: fnmatch.filter(nodes, pattern) if pattern.startswith("/dev/") else glob(pattern),
    )

    def nodes_of(uuid: str) -> set[str]:
        return {path for path, _ in CudaDevice().paths(uuid) if path.startswith("/dev/")}

    assert nodes_of("GPU-one") == {"/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"}
    assert nodes_of("GPU-two") == {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"}
    assert nodes_of("MIG-unknown") == set(nodes)


USES_GPU = """
import sys
from glob import glob
from pathlib import Path
from mallorn.kinds.cuda.device import cuda_device
from mallorn.workers.sandbox.sandbox import SandboxSpec, enter_sandbox
folder, uuid = Path(sys.argv[1]), sys.argv[2]
cuda_device._FACTS = str(folder / "facts")
cuda_device.glob = lambda pattern: glob(pattern.replace("/dev/", str(folder / "dev") + "/"))
paths = tuple(cuda_device.CudaDevice().paths(uuid))
enter_sandbox(SandboxSpec(folder / "room", drives_gpu=True, others=paths))
for node in sys.argv[3:]:
    try:
        open(folder / "dev" / node, "r+b").close()
        print(node)
    except PermissionError:
        pass
"""


@needs_walls
def test_behind_walls_a_session_opens_the_node_of_its_own_gpu_and_no_other(tmp_path: Path) -> None:
    nodes = "nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-modeset"
    for folder in ("dev", "room"):
        (tmp_path / folder).mkdir()
    for node in nodes:
        (tmp_path / "dev" / node).touch()
    for minor in range(3):
        file = tmp_path / "facts" / f"0000:0{minor}:00.0" / "information"
        file.parent.mkdir(parents=True)
        file.write_text(f"GPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n")
    env = {name: os.environ[name] for name in ("PATH", "HOME")} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", USES_GPU, str(tmp_path), "GPU-1", *nodes]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.split() == ["nvidia1", "nvidiactl", "nvidia-uvm"]


@needs_walls
def test_no_terminal_can_be_read(tmp_path: Path) -> None:
    """A terminal of this user is a file of this user, whose input its reader takes away."""
    master_fd, terminal_fd = os.openpty()
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from mallorn.workers.sandbox.sandbox import SandboxSpec, enter_sandbox\n"
        "enter_sandbox(SandboxSpec(Path(sys.argv[1])))\nopen(sys.argv[2])"
    )
    command = [sys.executable, "-P", "-c", program, str(tmp_path), os.ttyname(terminal_fd)]
    env = {name: os.environ[name] for name in ("PATH", "HOME")} | {"PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    os.close(master_fd)
    os.close(terminal_fd)
    assert "PermissionError" in said.stderr


BESIDE = """
import sys
from pathlib import Path
from mallorn.workers.sandbox.landlock import READ
from mallorn.workers.sandbox.sandbox import SandboxSpec, enter_sandbox
room = Path(sys.argv[1])
enter_sandbox(SandboxSpec(room / "own", others=((str(room), READ),)))
(room / "own" / "unmeasured_schedules").write_text("mine")
for step in (
    lambda: (room / "graphs" / "records").write_text("mine"),
    lambda: (room / "graphs" / "records").unlink(),
    lambda: (room / "graphs" / "link").symlink_to("/"),
    lambda: (room / "own").rename(room / "moved"),
    lambda: (room / "link").symlink_to("/"),
):
    try:
        step()
    except PermissionError:
        continue
    sys.exit("escaped")
print((room / "graphs" / "records").read_text())
"""


@needs_walls
def test_who_runs_what_others_made_reads_their_files_and_changes_none(tmp_path: Path) -> None:
    for name in ("own", "graphs"):
        (tmp_path / name).mkdir()
    (tmp_path / "graphs" / "records").write_text("theirs")
    env = {name: os.environ[name] for name in ("PATH", "HOME")} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", BESIDE, str(tmp_path)]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.strip() == "theirs"


BESIDE_A_THREAD = """
import sys, threading
from pathlib import Path
from mallorn.workers.sandbox.sandbox import SandboxSpec, enter_sandbox
end = threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
print(enter_sandbox(SandboxSpec(Path(sys.argv[1]))))
end.set()
thread.join()
"""


@needs_walls
def test_a_sandbox_is_not_full_if_a_thread_started_before_it(tmp_path: Path) -> None:
    env = {name: os.environ[name] for name in ("PATH", "HOME")} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", BESIDE_A_THREAD, str(tmp_path)]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.strip() == "without walls around 1 of its threads, which started before"


FORKS = """
import os, sys, time
from pathlib import Path
from mallorn.workers.device.forked_process import fork
from mallorn.workers.sandbox.sandbox import SandboxSpec, enter_sandbox
enter_sandbox(SandboxSpec(Path(sys.argv[1]), spawns=True))
print(fork(lambda: time.sleep(600), new_session=False), flush=True)
"""


def test_a_process_that_a_sandboxed_one_forks_ends_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKS, str(tmp_path)]
    parent = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=20)
    program = Path("/proc", parent.stdout.strip(), "exe")
    wait_for(lambda: not program.exists(), "the end of the forked process")
