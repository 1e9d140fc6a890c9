"""Part 1: assertions, peaks of the device, and prepared kernels compared with libraries."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.gpu.assertions import ASSERTIONS
from benchmarks.gpu.cells import ORIGIN, Cells, Row, keep_origin

ASSERTION_SEC: Final = 60.0
KERNEL_SEC: Final = 45.0  # without a new result, after which a kernel counts as endless
_MOST_STARTS: Final = 40  # starts of the process that times kernels
_POLL_SEC: Final = 0.2


def run(kind: str, home: Path, out: Path, seconds: float, environment: Mapping[str, str]) -> None:
    """Measure missing cells for at most `seconds`."""
    until_sec = time.monotonic() + seconds
    cells = Cells(home / "part1.jsonl", out / "part1.jsonl")
    keep_origin(cells, home / "kernels" / ORIGIN)
    for name in ASSERTIONS:
        if time.monotonic() < until_sec:
            cells.measure(f"assertion: {name}", lambda name=name: _assert(name, kind, home, environment))
    for _ in range(_MOST_STARTS):
        left_sec = until_sec - time.monotonic()
        if left_sec <= 0 or _time_kernels(kind, home, out, left_sec, environment):
            return


def _assert(name: str, kind: str, home: Path, environment: Mapping[str, str]) -> Row:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.assertions", name, kind, str(home / "kernels")],
        capture_output=True,
        text=True,
        timeout=ASSERTION_SEC,
        env=environment,
        cwd=home,
        check=False,
    )
    lines = child.stdout.strip().splitlines()
    if child.returncode or not lines:
        raise RuntimeError(f"exit status {child.returncode}: {child.stderr.strip()[-400:]}")
    result: Row = json.loads(lines[-1])
    return result


def _time_kernels(kind: str, home: Path, out: Path, seconds: float, environment: Mapping[str, str]) -> bool:
    """Run the process that times kernels; return whether it ended with status 0."""
    results, until_sec = home / "part1.jsonl", time.monotonic() + seconds
    command = [sys.executable, "-m", "benchmarks.gpu.kernel_times", kind, str(home), str(out), str(seconds)]
    process = subprocess.Popen(command, env=environment, cwd=home)
    try:
        length, changed_sec = results.stat().st_size, time.monotonic()
        while process.poll() is None:
            time.sleep(_POLL_SEC)
            if results.stat().st_size != length:
                length, changed_sec = results.stat().st_size, time.monotonic()
            if time.monotonic() > min(changed_sec + KERNEL_SEC, until_sec + KERNEL_SEC):
                return False
        return process.returncode == 0
    finally:
        process.kill()
        process.wait()
