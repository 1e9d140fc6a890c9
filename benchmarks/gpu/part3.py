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
from benchmarks.gpu.search_places import FOLDER, ORDER, PREBUILT, SCRATCH, is_finished
from benchmarks.gpu.unpack import Incomplete, has_compiler

ARCHIVE: Final = "part3.tar.xz"
LANES: Final = 3
PACK_SEC: Final = 30.0
_POLL_SEC: Final = 0.2
_END_SEC: Final = 10.0  # in which a lane may end what it began before it is killed


def run(kind: str, home: Path, out: Path, seconds: float, environment: Mapping[str, str]) -> None:
    """Measure missing cells for at most `seconds`. Raises Incomplete if TVM's compiler has not arrived."""
    if not has_compiler(home):
        raise Incomplete("TVM's compiler has not come: give all transfers after the first")
    until_sec = time.monotonic() + seconds
    (home / SCRATCH).mkdir(exist_ok=True)
    keep_origin(Cells(home / FOLDER / "cells.jsonl"), home / "kernels" / ORIGIN)
    order = json.loads((home / PREBUILT / ORDER).read_text())
    lanes = LANES if kind == CUDA else 1
    waiting = [name for name in order["tasks"] if not is_finished(home, name)]
    running: list[subprocess.Popen[bytes]] = []
    packed_sec = time.monotonic()
    try:
        while (waiting or running) and time.monotonic() < until_sec:
            while waiting and len(running) < lanes:
                left_sec = until_sec - time.monotonic()
                arguments = [kind, str(home), waiting.pop(0), str(left_sec), str(os.cpu_count() or 1)]
                command = [sys.executable, "-m", "benchmarks.gpu.contest", *arguments]
                running.append(subprocess.Popen(command, env=environment, cwd=home))
            running = [process for process in running if process.poll() is None]
            if time.monotonic() > packed_sec + PACK_SEC:
                pack(home, out)
                packed_sec = time.monotonic()
            time.sleep(_POLL_SEC)
        for process in running:
            process.wait(_END_SEC)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in running:
            process.kill()
            process.wait()
        pack(home, out)


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
