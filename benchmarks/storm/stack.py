"""An embedded stack to be killed: its processes by what they are, and what it leaves lying."""

import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import psutil

from mallorn import Client
from mallorn.core.errors import Unavailable
from mallorn.core.installation import python_path
from mallorn.stack.data_directory import DataDir

WHOLE: Final = "everything"
START_SEC: Final = 300.0
LOOK_SEC: Final = 0.2
COMMANDS: Final = {
    "serve": "coordinator",
    "control": "control",
    "device": "device",
    "tracker": "tracker",
    "worker": "worker",
}


class Stack:
    """`mallorn up` with a data directory and a temporary folder of its own."""

    def __init__(self, folder: Path, workers: int, database_url: str | None = None) -> None:
        self.data = DataDir(folder / "data")
        self.database_url = database_url or f"sqlite:///{self.data.path / 'mallorn.db'}"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self._log = folder / "up.log"
        self._workers = workers
        self._process: subprocess.Popen[bytes] | None = None
        self._twins: list[subprocess.Popen[bytes]] = []

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until all parts are ready. Raises Unavailable."""
        words = ("up", "--port", "0", "--data", str(self.data.path), "--workers", str(self._workers))
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MALLORN_")}
        own = {
            "TMPDIR": str(self.temporary),
            "MALLORN_SHIPPED": "false",
            "MALLORN_DATABASE_URL": self.database_url,
            "PYTHONPATH": python_path(),
        }
        with self._log.open("ab") as log:
            command = [sys.executable, "-P", "-m", "mallorn", *words]
            self._process = subprocess.Popen(command, env={**kept, **own}, stdout=log, stderr=log)
        until = time.monotonic() + START_SEC
        while not self._is_ready(self._process.pid):
            if not self.running or time.monotonic() > until:
                raise Unavailable("the stack did not start", hint=f"less {self._log}")
            time.sleep(LOOK_SEC)

    def client(self) -> Client:
        """Who asks the coordinator that runs now."""
        info = self.data.read_stack()
        if info is None:
            raise Unavailable("the stack does not run")
        return Client(info.url)

    def parts(self) -> Mapping[str, Sequence[psutil.Process]]:
        """The processes that run now, by what they are."""
        found: dict[str, list[psutil.Process]] = defaultdict(list)
        for process in self._family():
            with suppress(psutil.Error):
                if kind := kind_of(process.cmdline()):
                    found[kind].append(process)
        return found

    def kill(self, kind: str, rng: Random) -> list[int]:
        """SIGKILL for a process of this kind, or for all that there are; the numbers of those that got it."""
        victims = self._family() if kind == WHOLE else [rng.choice(self.parts()[kind])]
        for process in victims:
            with suppress(psutil.Error):
                process.kill()
        if kind == WHOLE and self._process is not None:
            self._process.wait()
        return [process.pid for process in victims]

    def double(self, kinds: Sequence[str]) -> None:
        """One more process of each of these kinds, with the words and the surroundings of the first."""
        self.undouble()
        parts = self.parts()
        # All parts have the same environment; forks of the stack do not show it.
        own = parts["tracker"][0].environ() | {"MALLORN_READY_FILE": ""}
        for kind in kinds:
            words = [word for word in parts[kind][0].cmdline() if word]
            with self._log.open("ab") as log:
                self._twins.append(subprocess.Popen(words, env=own, stdout=log, stderr=log))

    def undouble(self) -> None:
        """End the second ones."""
        for twin in self._twins:
            twin.terminate()
            twin.wait()
        self._twins.clear()

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        self.undouble()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def files(self) -> set[str]:
        """Names in the temporary folder, without the locks that processes of a host share."""
        return {path.name for path in self.temporary.iterdir() if path.suffix not in (".lock", ".gate")}

    def strangers(self) -> list[int]:
        """Processes of this stack that the `mallorn up` that runs now has not started."""
        ours, mark = {process.pid for process in self._family()}, str(self.data.path)
        return [pid for pid in _with_data(mark) if pid not in ours]

    def _is_ready(self, pid: int) -> bool:
        info = self.data.read_stack()
        return info is not None and info.pid == pid

    def _family(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            if self._process is not None:
                parent = psutil.Process(self._process.pid)
                return [parent, *parent.children(recursive=True)]
        return []


def kind_of(command: Sequence[str]) -> str:
    """What a process is by its command line; nothing for those that are no part of ours, as compilers."""
    if "mallorn.workers.subprocesses.child_main" in command:
        serves = re.search(r"workers\.tvm\.(\w+)", " ".join(command))
        return serves[1] if serves else ""
    if command and "valkey" in command[0]:  # which writes its socket there, too
        return "broker"
    if "importer" in command:
        return "importer"
    return next((COMMANDS[word] for word in COMMANDS if "mallorn" in command and word in command), "")


def _with_data(mark: str) -> Iterator[int]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("MALLORN_DATA_DIR") == mark:
                yield process.pid
