"""Part 3: the product, chance, first guesses and stock MetaSchedule search twelve tasks.

Tasks run side by side in lanes, which share the GPU by a lock, so that one task is timed while another is
proposed and built. A task's methods follow each other, so that every finished task is a whole comparison.
What is measured is packed into one archive of OUT every PACK_SEC; --earlier names the archive of an earlier
stretch of minutes, which is gone on with.
"""

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.gpu.cells import ORIGIN, Cells, keep_origin
from benchmarks.gpu.device import CUDA
from benchmarks.gpu.search_places import COUNTERS, FOLDER, IN_TURN, ORDER, PREBUILT, SCRATCH, has_cell
from benchmarks.gpu.unpack import Incomplete, has_compiler

ARCHIVE: Final = "part3.tar.xz"
LANES: Final = 3
TOOLS_SHARE: Final = 0.15  # of the seconds, for NVIDIA's tools over tasks whose searches have ended
PACK_SEC: Final = 30.0
_POLL_SEC: Final = 0.2
_END_SEC: Final = 10.0  # in which a lane may end what it began before it is killed


def run(kind: str, home: Path, out: Path, seconds: float, environment: Mapping[str, str]) -> None:
    """Measure missing cells for at most `seconds`. Raises Incomplete if TVM's compiler has not arrived."""
    if not has_compiler(home):
        raise Incomplete("TVM's compiler has not come: give all transfers after the first")
    began_sec = time.monotonic()
    (home / SCRATCH).mkdir(exist_ok=True)
    keep_origin(Cells(home / FOLDER / "cells.jsonl"), home / "kernels" / ORIGIN)
    names = json.loads((home / PREBUILT / ORDER).read_text())["tasks"]
    lanes = Lanes(kind, home, out, environment)
    try:
        searched = [name for name in names if not has_cell(home, name, IN_TURN)]
        lanes.run("search", searched, LANES if kind == CUDA else 1, began_sec + (1 - TOOLS_SHARE) * seconds)
        finished = [name for name in names if has_cell(home, name, IN_TURN)]
        open_tasks = [name for name in finished if not has_cell(home, name, COUNTERS)]
        lanes.run("tools", open_tasks, 1, began_sec + seconds)
    finally:
        pack(home, out)


class Lanes:
    """Runs a stage of tasks, some side by side, and packs what is measured now and then."""

    def __init__(self, kind: str, home: Path, out: Path, environment: Mapping[str, str]) -> None:
        self._kind, self._home, self._out, self._environment = kind, home, out, environment
        self._packed_sec = time.monotonic()

    def run(self, stage: str, tasks: list[str], count: int, until_sec: float) -> None:
        """Run a stage of `tasks` in their order, `count` at a time; end all shortly after the time."""
        waiting, running = list(tasks), list[subprocess.Popen[bytes]]()
        try:
            while (waiting or running) and time.monotonic() < until_sec + _END_SEC:
                left_sec = until_sec - time.monotonic()
                if waiting and len(running) < count and left_sec > 0:
                    arguments = [self._kind, str(self._home), waiting.pop(0), str(left_sec)]
                    command = [sys.executable, "-m", "benchmarks.gpu.contest", stage, *arguments]
                    command.append(str(os.cpu_count() or 1))
                    running.append(subprocess.Popen(command, env=self._environment, cwd=self._home))
                elif left_sec <= 0 and not running:
                    return
                running = [process for process in running if process.poll() is None]
                if time.monotonic() > self._packed_sec + PACK_SEC:
                    pack(self._home, self._out)
                    self._packed_sec = time.monotonic()
                time.sleep(_POLL_SEC)
        finally:
            for process in running:
                process.kill()
                process.wait()


def pack(home: Path, out: Path) -> None:
    """Write all cells, trials and logs of the searches to one archive of `out`."""
    draft = out / f"{ARCHIVE}.part"
    with tarfile.open(draft, "w:xz", preset=1) as archive:
        archive.add(home / FOLDER, FOLDER)
    draft.rename(out / ARCHIVE)


def take_earlier(archive: Path, home: Path) -> None:
    """Unpack what an earlier stretch of minutes measured, unless this home has measured already."""
    if archive.is_file() and not (home / FOLDER).exists():
        with tarfile.open(archive) as earlier:
            # Python 3.11 has filters since 3.11.4.
            earlier.extraction_filter = getattr(tarfile, "tar_filter", lambda member, _path: member)
            earlier.extractall(home)
