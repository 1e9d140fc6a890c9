"""Times the candidates of a batch on a machine without Mallorn, with only TVM's runtime and numpy.

    python run_batch.py FILE [--seconds N] [--results RESULTS] [--sandbox MODE]

`mallorn batch next` writes FILE, and `mallorn batch take` reads RESULTS
(FILE.results.jsonl). Each result is on disk before the next candidate begins. If the
program is started again, it continues where it ended or was killed. The exit status is 0 if
all candidates are timed, 3 if some are left, 2 if the machine or a file is refused.

run_batch.py is a zip of this module and of the modules that it and batch_child.py import;
workers and device servers use the same ones. None of them imports pydantic.
"""

import argparse
import fcntl
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
import zipfile
import zlib
from contextlib import ExitStack, closing, suppress
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Final

from mallorn.core.errors import MallornError
from mallorn.core.outcomes import Outcome, is_disturbed
from mallorn.workers.sandbox.sandbox import BEST_EFFORT, OFF, REQUIRE
from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.errors import HOSTS_DOING, ChildCrashed, ChildFailed, ChildTimeout
from mallorn.workers.subprocesses.pending_call import Call
from mallorn.workers.subprocesses.shutdown import STOP, ShutdownRequested

Json = Any  # an object, as json reads it
FORMAT: Final = 3
MANIFEST: Final = "batch.json"
START_SEC: Final = 300.0  # for loading TVM and a GPU's context
MOST_STARTS: Final = 2  # of a candidate during whose run this program itself was killed
MOST_CHARACTERS: Final = 1000  # of an error
DEVICE_CLASS: Final = ("host_class", "tvm_version", "threads")  # fields of `DeviceClass`


class BatchRefused(Exception):
    """The machine or a file does not fit the batch; the message says why."""


def main() -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(description="Time the candidates of a batch of `mallorn batch next`.")
    parser.add_argument("file", type=Path, help="the batch: a file, or a folder that holds what was in it")
    parser.add_argument("--seconds", type=float, default=None, help="end after so many seconds")
    parser.add_argument("--results", type=Path, default=None, help="default: FILE.results.jsonl")
    words = "if this kernel lacks a part: run nothing (require), use the rest (best-effort: default)"
    parser.add_argument("--sandbox", choices=(REQUIRE, BEST_EFFORT, OFF), default=BEST_EFFORT, help=words)
    options = parser.parse_args()
    results = options.results or Path(f"{str(options.file).rstrip('/')}.results.jsonl")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: STOP.request_stop())
    try:
        with tempfile.TemporaryDirectory(prefix="batch-") as folder:
            batch_dir = unpack(options.file, Path(folder))
            remaining = run_calls(batch_dir, results, options.seconds, options.sandbox)
    except BatchRefused as error:
        sys.stderr.write(f"refused: {error}\n")
        return 2
    print_message(
        f"{remaining} left; start it again" if remaining else f"all is timed: mallorn batch take {results}"
    )
    return 3 if remaining else 0


def print_message(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def unpack(file: Path, folder: Path) -> Path:
    """Return the folder with a batch's files: `file` itself, or `folder` after extraction.

    Raises BatchRefused if `file` is not a complete batch.
    """
    if file.is_dir():
        return file
    try:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if Path(name).name != name:
                    raise BatchRefused(f"{file} names a file outside the batch: {name}")
                archive.extract(name, folder)
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise BatchRefused(f"{file} is not a batch, or is incomplete: {error}") from None
    return folder


def run_calls(
    batch_dir: Path, results_path: Path, seconds: float | None = None, sandbox: str = BEST_EFFORT
) -> int:
    """Carry out calls that have no result, for at most `seconds`; return how many remain.

    Raises BatchRefused if a file was changed, if the results are of another batch, or if
    the machine does not fit the batch.
    """
    end_sec = inf if seconds is None else time.monotonic() + seconds
    text = (batch_dir / MANIFEST).read_bytes()
    batch = json.loads(text)
    if batch["format"] != FORMAT:
        raise BatchRefused(f"the batch has format {batch['format']}: use the run_batch.py of that version")
    for name, digest in batch["files"].items():
        file = batch_dir / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise BatchRefused(f"{name} was changed after the batch was made")
    mark = {"format": FORMAT, "batch": batch["batch"], "digest": hashlib.sha256(text).hexdigest()}
    results = ResultsFile(results_path, mark, {call["key"]: call.get("group") for call in batch["calls"]})
    remaining = [call for call in batch["calls"] if call["key"] not in results.done]
    head = {name: value for name, value in batch.items() if name not in ("calls", "files")}
    head["like"] = results.device_class or batch["like"]
    with closing(results), ExitStack() as stack, suppress(ShutdownRequested):
        if remaining:
            session = stack.enter_context(closing(DeviceProcess(head, batch_dir, sandbox)))
            results.append({**mark, "device": session.device})
            print_message(f"the sandbox around candidates is {session.device['sandbox']}")
        while remaining and time.monotonic() < end_sec and not STOP.requested.is_set():
            key = remaining[0]["key"]
            if results.starts.get(key, 0) >= MOST_STARTS:
                words = f"whatever ran it was killed {MOST_STARTS} times"
                answer: Json | None = {"outcome": "worker_lost", "error": words}
            else:
                results.append({"start": key})
                answer = session.run_call(results.with_best_time(remaining[0]), end_sec)
            if answer is None:
                results.append({"stop": key})
                break
            remaining.pop(0)
            results.append({"key": key, **answer})
            run_us = answer.get("run_us")
            words = f"{median(run_us):.1f} us" if run_us else answer.get("error", "")[:200]
            print_message(f"{key} {answer['outcome']} {words}")
    return len(remaining)


class ResultsFile:
    """The file of results: one JSON object per line, each flushed to disk at once."""

    def __init__(self, path: Path, mark: Json, groups: Json) -> None:
        """Open, lock and read the file. `mark` identifies the batch; `groups` maps calls to
        programs. Raises BatchRefused if the file is of another batch."""
        self.done: set[str] = set()
        self.starts: dict[str, int] = {}
        self._bests: dict[str, float] = {}
        self.device_class: Json | None = None  # of the device that measured so far
        self._path, self._mark, self._groups = path, mark, groups
        self._file = path.open("a+b")
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BatchRefused(f"another process writes {self._path}") from None
            except OSError:
                pass  # this file system has no locks: go on without
            self._file.seek(0)
            content = self._file.read()
            end = content.rfind(b"\n") + 1
            self._file.truncate(end)  # drop a line whose writer was killed in the middle
            for line in content[:end].splitlines():
                self._apply_line(json.loads(line))
        except BaseException:
            self._file.close()
            raise

    def _apply_line(self, line: Json) -> None:
        if "device" in line:
            if {name: line.get(name) for name in self._mark} != self._mark:
                raise BatchRefused(f"{self._path} holds results of another batch")
            self.device_class = [line["device"][name] for name in DEVICE_CLASS]
        elif "key" not in line:  # a stop takes back the start of its candidate
            key, step = (line["start"], 1) if "start" in line else (line["stop"], -1)
            self.starts[key] = self.starts.get(key, 0) + step
        else:
            self.done.add(line["key"])
            group = self._groups.get(line["key"])
            if group and line.get("run_us") and not is_disturbed(line["disturbed"]):
                self._bests[group] = min(median(line["run_us"]), self._bests.get(group, inf))

    def with_best_time(self, call: Json) -> Json:
        """Return a call with the best known time of its program, against which it races."""
        timing, group = call.get("timing"), call.get("group")
        if not timing or not group:
            return call
        best_us = min(timing["best_us"] or inf, self._bests.get(group, inf))
        return call | {"timing": timing | {"best_us": None if best_us == inf else best_us}}

    def append(self, line: Json) -> None:
        """Write a line and wait until it is on disk."""
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._apply_line(line)

    def close(self) -> None:
        self._file.close()


class DeviceProcess(Child):
    """Child process that runs a batch's libraries on this machine's device, which `device`
    describes. If a library crashes it, a new one starts."""

    MODULE = "mallorn.workers.detached.batch_child"

    def __init__(self, batch: Json, batch_dir: Path, sandbox: str) -> None:
        self._room = tempfile.TemporaryDirectory(prefix="batch-room-")  # all that the child may write
        # numpy would start threads when it is imported, and they would stay outside the sandbox.
        env = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        super().__init__(env=env, name="its process", room=Path(self._room.name))
        places = {"folder": str(batch_dir.absolute()), "room": self._room.name}
        self._order = json.dumps({"batch": batch, "sandbox": sandbox, **places}).encode()
        try:
            self.device = self._open_device()
        except BaseException:
            self.close()
            raise

    def sandbox_mode(self) -> str:
        """Return `off`: the child enters the sandbox itself, after it raised its priority."""
        return OFF

    def run_call(self, call: Json, end_sec: float) -> Json | None:
        """Run a call and return its result, or None if `end_sec` or a signal is first."""
        began_sec = time.monotonic()
        try:
            if not self.alive:
                self._open_device()
            pending = self.begin(Call("run_call", json.dumps(call).encode(), call["limit_sec"], json.loads))
            while not pending.poll():
                left_sec = end_sec - time.monotonic()
                if left_sec <= 0:
                    self.kill()
                    return None
                self.wait(min(pending.left_sec, left_sec))
            result = pending.result()
        except ShutdownRequested:
            return None
        except MallornError as error:
            self.kill()  # a GPU's context may be broken
            result = {"outcome": _outcome_of(error), "error": error.message[:MOST_CHARACTERS]}
        return {**result, "run_ms": round((time.monotonic() - began_sec) * 1e3, 3)}

    def close(self) -> None:
        """Kill the child and delete what it wrote."""
        self.kill()
        self._room.cleanup()

    def _open_device(self) -> Json:
        try:
            return self.ask(Call("open_device", self._order, START_SEC, json.loads))
        except ShutdownRequested:
            raise
        except ChildFailed as error:
            raise BatchRefused(f"TVM's runtime does not load here: {error.message}") from None
        except MallornError as error:
            raise BatchRefused(error.message) from None


def _outcome_of(error: MallornError) -> Outcome:
    """Return the outcome of a candidate during whose run the child raised an error or ended."""
    if isinstance(error, HOSTS_DOING):
        return Outcome.WORKER_LOST
    is_late = isinstance(error, ChildCrashed) and error.died_of is signal.SIGALRM
    return Outcome.RUN_TIMEOUT if is_late or isinstance(error, ChildTimeout) else Outcome.RUN_ERROR


if __name__ == "__main__":
    sys.exit(main())
