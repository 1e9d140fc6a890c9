"""A whole service for measuring: real processes, each started by benchmarks.scale.launch."""

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import psutil
import redis

from benchmarks.scale.measurer import FOLDER, NAME
from benchmarks.scale.sampling import TVM_CHILD
from mallorn import Client
from mallorn.core.address_checks import free_port
from mallorn.core.errors import MallornError
from mallorn.core.host_id import HOST_FOLDER_VARIABLE
from mallorn.core.installation import IMPORT_ROOT, python_path
from mallorn.stack.valkey import broker_url, valkey_command
from mallorn.workers.device.tracker_client import TrackerClient

START_SEC: Final = 120.0
LOOK_SEC: Final = 0.1
END_SEC: Final = 30.0


@dataclass
class Stack:
    """All processes of a service but its database, by kind; they end with the block."""

    folder: Path
    database_url: str
    targets: Sequence[str]
    devices: int
    processes: Mapping[str, list[subprocess.Popen[bytes]]] = field(
        default_factory=lambda: defaultdict(list), init=False
    )

    def __post_init__(self) -> None:
        self.marks = self.folder / "marks"
        self.logs = self.folder / "logs"
        for path in (self.marks, self.logs, self.folder / "tmp"):
            path.mkdir(parents=True)
        self._socket = self.folder / "broker.sock"
        self.tracker = "127.0.0.1", free_port()
        self.url = f"http://127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        self._start("broker", valkey_command(self._socket))
        self._await("the broker", lambda: bool(self.redis().ping()))
        self._launch("tracker", "tracker")
        self._await("the tracker", self._has_tracker)
        words = (f"127.0.0.1:{self.tracker[1]}", str(self.devices), *self.targets)
        self._start("devices", (sys.executable, "-P", "-m", "benchmarks.scale.devices", *words))
        self._await("the devices", lambda: self._registered() == self.devices)
        self._launch("coordinator", "serve")
        self._await("the coordinator", self._has_coordinator)
        return self

    def start_controls(self, count: int) -> None:
        for _ in range(count):
            self._launch("control", "control")

    def start_workers(self, count: int) -> None:
        for number in range(count):
            self._launch("worker", "worker", "--name", f"scale{number}")

    def redis(self) -> "redis.Redis":
        return redis.Redis(unix_socket_path=str(self._socket))

    def tree(self) -> dict[str, list[psutil.Process]]:
        """Return all live processes by kind; children of workers are of the kind TVM_CHILD."""
        found: dict[str, list[psutil.Process]] = defaultdict(list)
        for kind, processes in self.processes.items():
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    parent = psutil.Process(process.pid)
                    found[kind].append(parent)
                    child_kind = TVM_CHILD if kind == "worker" else kind
                    found[child_kind] += parent.children(recursive=True)
        return found

    def check_alive(self) -> None:
        """Raise SystemExit with the end of the log of a process that ended."""
        for kind, processes in self.processes.items():
            for number, process in enumerate(processes):
                if process.poll() is not None:
                    words = self._log_path(kind, number).read_text()[-3000:]
                    raise SystemExit(f"a process of kind {kind} ended with {process.returncode}:\n{words}")

    def __exit__(self, *_error: object) -> None:
        for kind in ("worker", "control", "coordinator", "devices", "tracker", "broker"):
            for process in self.processes[kind]:
                process.terminate()
            for process in self.processes[kind]:
                try:
                    process.wait(END_SEC)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _launch(self, kind: str, *words: str) -> None:
        module = "benchmarks.scale.launch"
        self._start(kind, (sys.executable, "-P", "-m", module, str(self.marks), kind, "--", *words))

    def _start(self, kind: str, command: Sequence[str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLORN_")}
        port = self.url.rpartition(":")[2]
        own = {
            "MALLORN_DATA_DIR": str(self.folder),
            "MALLORN_DATABASE_URL": self.database_url,
            "MALLORN_REDIS_URL": broker_url(self._socket),
            "MALLORN_TRACKER": f"127.0.0.1:{self.tracker[1]}",
            "MALLORN_PORT": port,
            "MALLORN_PLUGINS": NAME,
            "MALLORN_BUILDERS": "1",
            "MALLORN_SHIPPED": "false",
            HOST_FOLDER_VARIABLE: str(self.folder / "tmp"),
            FOLDER: str(self.marks),
            "TMPDIR": str(self.folder / "tmp"),
            "PYTHONPATH": os.pathsep.join((str(IMPORT_ROOT), python_path())),
        }
        log = self._log_path(kind, len(self.processes[kind]))
        with log.open("wb") as file:
            process = subprocess.Popen(command, env=kept | own, stdout=file, stderr=file)
        self.processes[kind].append(process)

    def _log_path(self, kind: str, number: int) -> Path:
        return self.logs / f"{kind}{number}.log"

    def _await(self, name: str, is_ready: Callable[[], bool]) -> None:
        deadline_sec = time.monotonic() + START_SEC
        while time.monotonic() < deadline_sec:
            self.check_alive()
            with suppress(MallornError, redis.RedisError, OSError):
                if is_ready():
                    return
            time.sleep(LOOK_SEC)
        raise SystemExit(f"{name} did not start within {START_SEC:.0f} s; see {self.logs}")

    def _has_tracker(self) -> bool:
        with TrackerClient(self.tracker):
            return True

    def _registered(self) -> int:
        with TrackerClient(self.tracker) as client:
            return sum("mallorn" in server for server in client.summary()["server_info"])

    def _has_coordinator(self) -> bool:
        with Client(self.url) as client:
            client.newest_job()
        return True
