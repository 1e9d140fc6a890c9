"""Build the kernels and pack the transfers."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Final

from benchmarks.gpu.archive import SEARCHED as SEARCHED_FOLDER
from benchmarks.gpu.archive import TooLarge, pack, tree_bytes
from benchmarks.gpu.cells import ORIGIN
from benchmarks.gpu.kernel_batch import call_of, write_batch
from benchmarks.gpu.kernel_index import COMPLETE, INDEX, counts_below
from benchmarks.gpu.search_places import ORDER, slug
from benchmarks.gpu.tasks import GPU, REHEARSAL, SEARCHED, SEARCHED_REHEARSAL, Task
from benchmarks.hosts import describe_host
from mallorn.core.targets import Target, parse_target
from mallorn.kinds.cuda.kind import Cuda
from mallorn.workers.detached.pack_batch import target_requirements
from mallorn.workers.host.code_digest import TVM_VERSION

MEGABYTE: Final = 10**6
REPORT: Final = "prepared.json"
_FIRST: Final = 2  # random kernels of each task that are built before the others
_POLL_SEC: Final = 0.2


def prepare(options: argparse.Namespace) -> None:
    """Build all that `options.out` lacks, pack it, and print the size of every transfer."""
    started_sec, out = time.monotonic(), options.out.absolute()
    target = parse_target(options.target)
    tasks = {"gpu": GPU, "rehearsal": REHEARSAL}[options.tasks]
    searched = {"gpu": SEARCHED, "rehearsal": SEARCHED_REHEARSAL}[options.tasks]
    kernels = out / "kernels"
    mark = kernels / "target.json"
    if not mark.exists() or mark.read_text() != target.text:
        rmtree(kernels, ignore_errors=True)
        kernels.mkdir(parents=True)
        mark.write_text(target.text)
    _special(kernels, target)
    _build(tasks, target, kernels, options)
    (kernels / ORIGIN).write_text(json.dumps(describe_host()))
    _say("right results, which take minutes")
    write_batch(kernels, target)
    if options.searched:
        _prepare_search(searched, target, out / SEARCHED_FOLDER, options)
    built_sec = time.monotonic() - started_sec
    tree = tree_bytes()
    limit = int(options.transfer_mb * MEGABYTE) - tree
    if limit <= 0:
        raise TooLarge(f"the tracked files alone have {tree} bytes, more than {options.transfer_mb:g} MB")
    sizes = pack(out, options.python, limit, options.preset, _say)
    built, errors = counts_below(kernels)
    report = {
        "target": target.text,
        "kernels": built,
        "failures": errors,
        "transfers_bytes": sizes,
        "tracked_bytes": tree,
        "limit_bytes": int(options.transfer_mb * MEGABYTE),
        "kernels_bytes": _bytes(kernels),
        "build_sec": round(built_sec, 1),
        "seconds": round(time.monotonic() - started_sec, 1),
    }
    (out / REPORT).write_text(json.dumps(report, indent=1) + "\n")
    for number, size in sizes.items():
        total = (size + tree) / MEGABYTE
        _say(f"transfer {number}: {size / MEGABYTE:.1f} MB, with the tracked files {total:.1f} MB")


def _prepare_search(
    tasks: tuple[Task, ...], target: Target, folder: Path, options: argparse.Namespace
) -> None:
    """Write the order of part 3 and right results; build what no time decides, within a time."""
    folder.mkdir(parents=True, exist_ok=True)
    order = {
        "target": target.text,
        "needs": target_requirements(target),
        "tvm": TVM_VERSION,
        "trials": options.searched,
        "round": min(Cuda.round_size, options.searched),
        "tasks": [task.name for task in tasks],
        "calls": {task.name: call_of(task, folder, target) for task in tasks},
    }
    (folder / ORDER).write_text(json.dumps(order))
    until_sec = time.monotonic() + options.searched_seconds
    waiting, running = list(tasks), list[subprocess.Popen[bytes]]()
    try:
        while (waiting or running) and time.monotonic() < until_sec:
            running = [process for process in running if process.poll() is None]
            if waiting and len(running) < (os.cpu_count() or 1):
                task = waiting.pop(0)
                _say(f"libraries of {task.name}")
                sizes = [str(order["trials"]), str(order["round"])]
                arguments = [task.name, target.text, str(folder / slug(task)), *sizes]
                command = [sys.executable, "-m", "benchmarks.gpu.prebuild", *arguments]
                running.append(subprocess.Popen(command, start_new_session=True))
            time.sleep(_POLL_SEC)
    finally:
        for process in running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _special(kernels: Path, target: Target) -> None:
    """Build the libraries of the assertions in a child process."""
    command = [sys.executable, "-m", "benchmarks.gpu.special", target.text, str(kernels)]
    subprocess.run(command, check=True)


def _build(tasks: tuple[Task, ...], target: Target, kernels: Path, options: argparse.Namespace) -> None:
    """Build kernels, one process per core and task, until time or space is used up.

    First every task gets some kernels, then all.
    """
    until_sec = time.monotonic() + options.build_seconds
    every = str(options.chance)
    waiting = [
        (folder, task, wanted)
        for wanted in ([f"{every} {_FIRST}", every] if options.chance > _FIRST else [every])
        for folder, task in ((kernels / f"{number:02d}", task) for number, task in enumerate(tasks))
        if _mark_of(folder) not in (wanted, every)
    ]
    running: dict[Path, _Builder] = {}
    try:
        while waiting or running:
            if time.monotonic() > until_sec or _bytes(kernels) > options.kernels_mb * MEGABYTE:
                _say("no more time or room: the kernels are what was built so far")
                return
            for folder, builder in list(running.items()):
                if builder.is_stuck(options.kernel_seconds):
                    _say(f"a kernel of {builder.task.name} takes too long")
                    builder.end()
                    waiting.insert(0, (folder, builder.task, builder.wanted))
                if builder.has_ended():
                    del running[folder]
            free = [each for each in waiting if each[0] not in running]
            if free and len(running) < (os.cpu_count() or 1):
                folder, task, wanted = free[0]
                waiting.remove(free[0])
                _say(f"kernels of {task.name}")
                running[folder] = _Builder(task, target, folder, wanted)
            time.sleep(_POLL_SEC)
    finally:
        for builder in running.values():
            builder.end()


class _Builder:
    """A process that builds kernels of one task and starts compilers."""

    def __init__(self, task: Task, target: Target, folder: Path, wanted: str) -> None:
        self.task, self.wanted = task, wanted
        folder.mkdir(parents=True, exist_ok=True)
        self._index, self._began_sec = folder / INDEX, time.time()
        arguments = [task.name, target.text, str(folder), *wanted.split()]
        command = [sys.executable, "-m", "benchmarks.gpu.candidates", *arguments]
        self._process = subprocess.Popen(command, start_new_session=True)

    def is_stuck(self, limit_sec: float) -> bool:
        """Return whether the process wrote no index line for `limit_sec`."""
        written_sec = self._index.stat().st_mtime if self._index.exists() else 0.0
        return time.time() - max(written_sec, self._began_sec) > limit_sec

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """Kill the process with its compilers, which might run for hours."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _mark_of(folder: Path) -> str:
    """Return the arguments with which the folder was completed; empty if it was not."""
    return (folder / COMPLETE).read_text() if (folder / COMPLETE).exists() else ""


def _bytes(kernels: Path) -> int:
    return sum(file.stat().st_size for file in kernels.rglob("*") if file.is_file() and file.name != INDEX)


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()
