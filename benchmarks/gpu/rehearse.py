"""Rehearse parts 1, 3 and 4 on this machine, with its CPU instead of the GPU.

Part 2 is part 4 with other budgets.

They run in an empty directory, in a Python that has only the GPU machine's packages, and without
network. Each part is killed half-way and restarted.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypedDict

from benchmarks.gpu.cells import BEGUN, Row, read_rows
from benchmarks.gpu.device import CPU
from benchmarks.gpu.packages import ROOT, lay_packages, there
from benchmarks.gpu.part3 import ARCHIVE
from benchmarks.gpu.prepare import REPORT
from benchmarks.gpu.search_places import FOLDER
from benchmarks.hosts import describe_host

TRANSFER_MB: Final = 67  # the default of `prepare`
_TARGET: Final = '{"kind":"llvm","num-cores":2}'
_CHANCE: Final = 2
_SEARCHED: Final = 4  # trials of each search of part 3
_THERE: Final = "3.12"
_VERSION: Final = "import sys; print('%d.%d' % sys.version_info[:2])"
_POLL_SEC: Final = 0.05
_PART_SEC: Final = 900.0
_KEPT: Final = ("PATH", "LANG", "TMPDIR")
# When the namespace ends, the kernel kills all processes in it.
_NAMESPACES: Final = (
    "unshare",
    "--map-root-user",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
_LOOPBACK: Final = ("sh", "-c", 'ip link set lo up && exec "$@"', "sh")
_NOWHERE: Final = "http://127.0.0.1:9"


class Transfers(TypedDict):
    """Report of `prepare`: sizes in bytes, and seconds."""

    target: str
    transfers_bytes: dict[str, int]
    tracked_bytes: int
    limit_bytes: int
    kernels_bytes: int
    build_sec: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Results of the parts: seconds, cells, and the cells' starts."""

    python: str
    network: str
    seconds: dict[str, float]
    cells: dict[str, list[Row]]
    begun: dict[str, list[str]]  # names of started cells, one per start


def interpreter(version: str) -> str | None:
    """Return a Python of this version on PATH or next to the running one, or None."""
    neighbours = Path(sys.base_prefix).resolve().parent.glob(f"{version}*/bin/python{version}")
    for candidate in filter(
        None, [sys.executable, shutil.which(f"python{version}"), *map(str, sorted(neighbours))]
    ):
        process = subprocess.run([candidate, "-c", _VERSION], capture_output=True, text=True, check=False)
        if process.stdout.strip() == version:
            return candidate
    return None


def prepare_rehearsal(out: Path, version: str) -> Transfers:
    """Build kernels for a CPU and pack the transfers in `out`; return the report."""
    options = ["--tasks", "rehearsal", "--target", _TARGET, "--chance", str(_CHANCE), "--python", version]
    options += [
        "--searched",
        str(_SEARCHED),
        "--preset",
        "1",
        "--transfer-mb",
        str(TRANSFER_MB),
        "--out",
        str(out),
    ]
    subprocess.run([sys.executable, "-m", "benchmarks.gpu", "prepare", *options], cwd=ROOT, check=True)
    report: Transfers = json.loads((out / REPORT).read_text())
    return report


def version_there() -> str:
    """Return the GPU machine's Python version; this one's if that is not installed here."""
    return _THERE if interpreter(_THERE) else f"{sys.version_info.major}.{sys.version_info.minor}"


def rehearse(out: Path, empty: Path, version: str) -> Rehearsal:
    """Run the parts with the transfers in `out`, in the empty directory."""
    bare = _python_there(out / "machine", version)
    shutil.copytree(ROOT / "benchmarks" / "gpu", empty / "benchmarks" / "gpu")
    shutil.copy(ROOT / "benchmarks" / "__init__.py", empty / "benchmarks")
    network, prefix = _without_network()
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {"HOME": str(empty)}
    if not prefix:
        environment |= dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), _NOWHERE)
    rehearsal = Rehearsal(version, network, {}, {}, {})
    sends = sorted((out / "send").iterdir(), key=lambda folder: int(folder.name))
    for number, transfers, is_half in (
        (1, sends[:1], _half_of_part1),
        (3, sends[1:], _half_of_part3),
        (4, [], _half_of_part4),
    ):
        began_sec = time.monotonic()
        command = [*prefix, bare, "-m", "benchmarks.gpu", "part", str(number), "--device", CPU]
        command += ["--home", str(empty / "home"), "--out", str(empty / "results")]
        command += ["--seconds", str(_PART_SEC), "--transfer", *map(str, transfers)]
        _run_and_kill(command, environment, empty, lambda is_half=is_half: is_half(empty))
        subprocess.run(command, env=environment, cwd=empty, check=True)
        rows = [row for file in _cell_files(empty, number) for row in read_rows(file)]
        name = f"part {number}"
        rehearsal.seconds[name] = round(time.monotonic() - began_sec, 1)
        rehearsal.cells[name] = [row for row in rows if BEGUN not in row]
        rehearsal.begun[name] = [str(row["cell"]) for row in rows if row.get(BEGUN)]
    return rehearsal


def _python_there(machine: Path, version: str) -> str:
    """Return a Python in a virtual environment that has the GPU machine's packages."""
    python, path = interpreter(version), machine / "bin" / "python"
    if python is None:
        raise FileNotFoundError(f"there is no Python {version}")
    if not (machine / "complete.txt").exists():
        subprocess.run([python, "-m", "venv", "--clear", "--without-pip", str(machine)], check=True)
        lay_packages(machine / "lib" / f"python{version}" / "site-packages", version, there(version))
        (machine / "complete.txt").touch()
    return str(path)


def _without_network() -> tuple[str, Sequence[str]]:
    """Return a description of how the network is cut off, and a prefix for commands."""
    prefix = (*_NAMESPACES, *_LOOPBACK)
    test = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return ("a namespace without one", prefix) if test.returncode == 0 else ("proxies that lead nowhere", ())


def _run_and_kill(
    command: Sequence[str], environment: dict[str, str], folder: Path, is_half: Callable[[], bool]
) -> None:
    """Run a part until it is half done, then kill it."""
    process = subprocess.Popen(command, env=environment, cwd=folder, start_new_session=True)
    try:
        while process.poll() is None and not is_half():
            time.sleep(_POLL_SEC)
    finally:
        process.kill()
        process.wait()


def _half_of_part1(empty: Path) -> bool:
    """Return whether at least two kernels are timed."""
    rows = read_rows(empty / "results" / "part1.jsonl")
    return sum("task" in row for row in rows) >= 2


def _half_of_part3(empty: Path) -> bool:
    """Return whether a task has trials of its first search but not all."""
    return any(file.stat().st_size for file in (empty / "home" / FOLDER).glob("*/trials.jsonl"))


def _half_of_part4(empty: Path) -> bool:
    """Return whether a job has measured candidates."""
    database = empty / "home" / "data-part4" / "mallorn.db"
    return database.exists() and _measured(database)


def _cell_files(empty: Path, number: int) -> list[Path]:
    """Return a part's files of cells; those of part 3 as they come back, in one archive."""
    if number != 3:
        return [empty / "results" / f"part{number}.jsonl"]
    with tarfile.open(empty / "results" / ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "tar_filter", lambda member, _path: member)
        archive.extractall(empty / "results")
    return sorted((empty / "results" / FOLDER).rglob("cells.jsonl"))


def _measured(database: Path) -> bool:
    import sqlite3

    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as rows:
            return bool(rows.execute("select count(*) from measurements").fetchone()[0])
    except sqlite3.Error:  # its tables are being created
        return False


def main(out: Path, report: Path | None) -> None:
    """Prepare and rehearse; write sizes, seconds and cells' results to `report`."""
    version = version_there()
    transfers = prepare_rehearsal(out.absolute(), version)
    with TemporaryDirectory(prefix="mallorn-rehearsal-") as empty:
        rehearsal = rehearse(out.absolute(), Path(empty), version)
    ends = {
        part: {str(row["cell"]): row.get("error") or row.get("left_out") or row["ok"] for row in rows}
        for part, rows in rehearsal.cells.items()
    }
    headline = rehearsal.seconds
    if report:
        raw = {
            "benchmark": "gpu rehearsal",
            **describe_host(),
            "python": version,
            "network": rehearsal.network,
        }
        content = {**raw, "prepared": transfers, "cells": ends, "headline": headline}
        report.write_text(json.dumps(content, indent=1) + "\n")
    for part, seconds in headline.items():
        sys.stdout.write(f"{part}: {seconds:.0f} s, killed half-way and gone on with\n")
