"""Compares a job's seconds, processor time, busy share and memory in two checkouts.

python -m benchmarks.two_trees OLD NEW MODEL [--trials 64] [--repeats 2] [--json FILE]

OLD and NEW are checkouts (`git worktree add --detach DIR COMMIT`); this interpreter runs both
in turn on empty data directories. Memory is a process's private memory at its peak, sampled
once a second; for the children, the sum. Processor time is that of the worker and its
compilers. The busy share is the device's, from the start of the first round to the last trial.
The headline is NEW's seconds from start to finished export over OLD's, by medians.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from benchmarks.hosts import describe_host

# Parts of command lines; the second name is that of older commits.
KINDS: Final = {
    "worker": ("rounds,finish,train",),
    "children": ("workers.subprocesses", "workers.children"),
}
COMPILER: Final = ("workers.tvm.candidate_compiler_child", "workers.tvm.compiler")
SPAN: Final = """SELECT max(created_at) - min(created_at), count(*), sum(run_ms) / 1e3,
    max(created_at) - (SELECT min(started_at) FROM rounds), min(created_at)
    FROM measurements WHERE origin != 'finish' AND round_id IS NOT NULL"""
MEBIBYTE: Final = 2**20


def main() -> None:
    args = _arguments()
    trees = {"old": args.old.resolve(), "new": args.new.resolve()}
    runs: list[tuple[str, dict[str, float]]] = []
    for turn in range(args.repeats):
        for name in list(trees)[:: -1 if turn % 2 else 1]:
            runs.append((name, run(trees[name], args.model.resolve(), args.trials)))
            print(json.dumps(runs[-1]), flush=True)
    old, new = (median(figures["seconds"] for arm, figures in runs if arm == name) for name in trees)
    if args.json:
        raw = {"benchmark": "two_trees", **describe_host(), "runs": runs, "headline": new / old}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    print(f"new over old: {new / old:.2f}")


def run(tree: Path, model: Path, trials: int) -> dict[str, float]:
    """Tune once in an empty home directory; return the figures."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "PYTHONPATH": str(tree), "HOME": home}
        directories = ["--data", f"{home}/data", "--out", f"{home}/out"]
        started_at, started_sec = time.monotonic(), time.time()
        command = [sys.executable, "-m", "mallorn", "tune", str(model), "--trials", str(trials), *directories]
        process = subprocess.Popen(command, cwd=home, env=env, stdout=subprocess.DEVNULL)
        watched = _watch(process)
        seconds = time.monotonic() - started_at
        if process.returncode:
            raise SystemExit(f"{tree}: exit code {process.returncode}")
        with closing(sqlite3.connect(f"{home}/data/mallorn.db")) as database:
            span_sec, count, running_sec, tuning_sec, first_sec = database.execute(SPAN).fetchone()
    return {
        "seconds": seconds,
        "first_trial_sec": first_sec - started_sec,
        "trials": count,
        "seconds_a_trial": span_sec / max(1, count - 1),
        "processor_sec_a_trial": watched.processor_sec / count,
        "busy_share": running_sec / tuning_sec,
        **{f"{kind}_mib": size for kind, size in watched.largest_mib.items()},
    }


@dataclass
class Watched:
    """Peak memory by kind of process, and processor seconds by process, of one run."""

    largest_mib: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    by_process: dict[tuple[int, float], float] = field(default_factory=dict)

    @property
    def processor_sec(self) -> float:
        return sum(self.by_process.values())

    def look(self, processes: Sequence[psutil.Process]) -> None:
        for kind, signs in KINDS.items():
            total_bytes = sum(_held(each, signs) for each in processes)
            self.largest_mib[kind] = max(self.largest_mib[kind], total_bytes / MEBIBYTE)
        for each in processes:
            with suppress(psutil.Error):
                self.by_process[each.pid, each.create_time()] = _spent_sec(each)


def _watch(process: subprocess.Popen[bytes]) -> Watched:
    watched = Watched()
    while process.poll() is None:
        watched.look(psutil.Process(process.pid).children(recursive=True))
        time.sleep(1)
    return watched


def _held(process: psutil.Process, signs: Sequence[str]) -> int:
    """Return a process's private bytes; 0 if it is of another kind or has ended."""
    with suppress(psutil.Error):
        if _has(process, signs):
            return int(process.memory_full_info().uss)
    return 0


def _has(process: psutil.Process, signs: Sequence[str]) -> bool:
    command = " ".join(process.cmdline())
    return any(sign in command for sign in signs)


def _spent_sec(process: psutil.Process) -> float:
    """Return processor seconds of a worker, or of a compiler with its linkers; else 0."""
    times = process.cpu_times()
    if _has(process, COMPILER):
        return float(times.user + times.system + times.children_user + times.children_system)
    return float(times.user + times.system) if _has(process, KINDS["worker"]) else 0.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
