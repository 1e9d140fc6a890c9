"""One task of part 3: every method searches it, then their best candidates are timed in turn.

    python -m benchmarks.gpu.contest search|tools KIND HOME TASK SECONDS BUILDERS

`search` measures a cell for each method and the cell `in turn`; `tools` one for each tool of NVIDIA's.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from shutil import which
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.gpu.cells import Cells, Row, Unfinished, Value
from benchmarks.gpu.device import CUDA
from benchmarks.gpu.gpu_turns import FINAL, SEARCHED, GpuTurns, hold_gpu, manifest_of, timing
from benchmarks.gpu.product_search import ProductSearch, Trials, is_first_guess, library_of
from benchmarks.gpu.recording import model_task
from benchmarks.gpu.rival_server import Rival
from benchmarks.gpu.search_places import (
    COUNTERS,
    FOLDER,
    IN_TURN,
    METHODS,
    ORDER,
    OURS,
    PREBUILT,
    SCRATCH,
    SEED,
    STOCK,
    slug,
)
from benchmarks.gpu.tasks import BY_NAME
from benchmarks.gpu.trials import MeasuredCandidate, TrialFile
from mallorn.core.job_options import JobOptions
from mallorn.core.targets import Target
from mallorn.stack.supervised_process import DieWithParent

SEARCH: Final = "search"
FIRST_GUESS: Final = "first guess"
PASSES: Final = 3
MOST_TRIED: Final = 5  # best candidates of a method, of which the first right one counts
SANITIZERS: Final = ("memcheck", "racecheck", "synccheck")
TOOL_SEC: Final = 20.0
NONE: Final = "ERROR SUMMARY: 0 errors"  # what compute-sanitizer prints of a kernel without errors
METRICS: Final = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.sum",
    "l1tex__data_bank_conflicts_pipe_lsu.sum",
    "smsp__average_warp_latency_issue_stalled_long_scoreboard.pct",
    "launch__registers_per_thread",
)


class Contest:
    """The search of one task by all methods."""

    def __init__(self, kind: str, home: Path, name: str, seconds: float, builders: int) -> None:
        self._order = json.loads((home / PREBUILT / ORDER).read_text())
        self._kind, self._home, self._task, self._builders = kind, home, BY_NAME[name], builders
        self._until_sec = time.monotonic() + seconds
        self._folder = home / FOLDER / slug(self._task)
        self._scratch = home / SCRATCH / slug(self._task)
        self._libraries = home / PREBUILT / slug(self._task)
        self._libraries.mkdir(parents=True, exist_ok=True)
        self._target = Target(self._order["target"])
        self._lock = home / SCRATCH / "gpu.lock"
        self._manifest = manifest_of(self._order["needs"], self._order["tvm"])
        self._call: dict[str, Any] = self._order["calls"][name]
        if check := self._call.get("check"):
            self._call["check"] = check | {"expected": str(home / PREBUILT / check["expected"])}

    def search(self) -> None:
        """Measure missing cells of searches, and the best in turn, until time is over."""
        cells = Cells(self._folder / "cells.jsonl")
        gpu = GpuTurns(self._scratch / "session", self._lock, self._manifest)
        try:
            file = self._file()
            if not file.has_device:
                timing = JobOptions(evaluator=SEARCHED).timing(self._target)
                file.append_device(gpu.device() | {"evaluator": timing})
            for method in METHODS:
                if time.monotonic() < self._until_sec:
                    cells.measure(
                        f"{self._task.name}/{method}/{SEED}", lambda method=method: self._search(method, gpu)
                    )
            if all(f"{self._task.name}/{method}/{SEED}" in cells for method in METHODS):
                cells.measure(f"{self._task.name}/{IN_TURN}", lambda: self._in_turn(gpu))
        finally:
            gpu.close()

    def _cell(self, method: str) -> str:
        return f"{self._task.name}/{method}/{SEED}"

    def _file(self) -> TrialFile:
        return TrialFile(self._folder / "trials.jsonl")

    def _search(self, method: str, gpu: GpuTurns) -> Row:
        trials = int(self._order["trials"])
        if method == STOCK:
            waited_sec = self._search_stock(trials)
        else:
            folder = self._scratch / "ours"
            search = ProductSearch(
                model_task(self._task.name),
                self._target,
                folder,
                self._builders,
                self._order["round"],
            )
            runs = Trials(search, gpu, self._call, self._file(), self._libraries, self._target)
            try:
                runs.run(self._task.name, method, SEED, trials, self._until_sec)
            finally:
                search.close()
            waited_sec = runs.waited_sec
        return summary_of(self._file().of(method, SEED), waited_sec)

    def _search_stock(self, trials: int) -> float:
        """Run MetaSchedule in a process; it goes on with a new random search where it was ended."""
        known = len(self._file().of(STOCK, SEED))
        order = {
            "task": self._task.name,
            "target": self._target.text,
            "folder": str(self._scratch / "stock"),
            "trials_file": str(self._folder / "trials.jsonl"),
            "lock": str(self._lock),
            "manifest": self._manifest,
            "call": self._call,
            "libraries": str(self._libraries),
            "seed": SEED,
            "left": trials - known,
            "builders": self._builders,
        }
        if trials <= known:
            return 0.0
        log = self._folder / "stock.log"
        with log.open("a") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gpu.stock_search", json.dumps(order)],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                process.wait(max(1.0, self._until_sec - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Unfinished from None
            finally:
                _kill_group(process)
        if process.returncode and not self._file().of(STOCK, SEED):
            raise RuntimeError(
                f"MetaSchedule ended with status {process.returncode}: {log.read_text()[-300:]}"
            )
        return 0.0

    def _in_turn(self, gpu: GpuTurns) -> Row:
        """Time the first guess and each method's best right candidate in turn with the library."""
        file, call = self._file(), self._call
        rival = Rival(self._kind, self._task.name, self._lock, os.environ)
        times: dict[str, list[float]] = {}
        errors: dict[str, Value] = {}
        picked: dict[str, MeasuredCandidate] = {}
        library: list[dict[str, Any]] = []
        try:
            for name, ordered in self._finalists(file).items():
                for each in ordered[:MOST_TRIED]:
                    answer = (
                        gpu.submit(timing(call, self._library(each), None, FINAL, check=True)).result().answer
                    )
                    if answer["outcome"] == "ok":
                        picked[name] = each
                        break
                    errors[f"{name} {each.number}"] = answer.get("error", answer["outcome"])
            for number in range(PASSES):
                library.append(rival.bursts_us(call))
                for name in sorted(picked, reverse=bool(number % 2)):
                    path = self._library(picked[name])
                    answer = gpu.submit(timing(call, path, None, FINAL, check=False)).result().answer
                    times.setdefault(name, []).extend(answer.get("run_us") or [])
                library.append(rival.bursts_us(call))
        finally:
            rival.close()
        bursts = [us for answer in library for us in answer.get("us", [])]
        return {
            "us": {name: round(median(values), 3) for name, values in times.items() if values},
            "all_us": {name: [round(us, 3) for us in values] for name, values in times.items()},
            "numbers": {name: each.number for name, each in picked.items()},
            "kernels": {name: each.kernels for name, each in picked.items()},
            "wrong": errors,
            "library": library[0].get("library", library[0].get("missing")),
            "library_us": round(median(bursts), 3) if bursts else None,
            "all_library_us": list(bursts),
        }

    def _finalists(self, file: TrialFile) -> dict[str, list[MeasuredCandidate]]:
        """Return timed candidates by method, the fastest first; the first guess is a method, too."""
        guesses = [each for each in file.of(OURS, SEED) if is_first_guess(each.trial)]
        found = {FIRST_GUESS: guesses[:1]}
        for method in METHODS:
            timed = [each for each in file.of(method, SEED) if each.trial.latency_us is not None]
            found[method] = sorted(timed, key=lambda each: each.trial.latency_us or inf)
        return found

    def _library(self, measured: MeasuredCandidate) -> Path:
        """Return a candidate's library; build it again if another stretch of minutes built it."""
        path = self._libraries / measured.library if measured.library else Path()
        if not path.is_file():
            path = library_of(self._libraries, measured.trial.candidate)
        if not path.is_file():
            from mallorn.workers.tvm.compile.build_libraries import build

            decisions = measured.trial.candidate.decisions
            tir = model_task(self._task.name).tir
            build(tir, self._target.text, measured.sketch.trace, decisions, str(path), True)
        return path

    def use_tools(self) -> None:
        """Run NVIDIA's sanitizer and profiler, if they are here, over first guess and best."""
        cells = Cells(self._folder / "cells.jsonl")
        for tool in SANITIZERS:
            name = f"{self._task.name}/sanitizer {tool}"
            if time.monotonic() < self._until_sec:
                cells.measure(name, lambda tool=tool: self._tool("compute-sanitizer", ["--tool", tool]))
        if time.monotonic() < self._until_sec:
            options = ["--clock-control", "none", "--csv", "--metrics", ",".join(METRICS)]
            cells.measure(f"{self._task.name}/{COUNTERS}", lambda: self._tool("ncu", options))

    def _tool(self, program: str, options: Sequence[str]) -> Row:
        """Run a tool over one run of each finalist; return the end of its output and its status."""
        path = which(program)
        if self._kind != CUDA or path is None:
            return {
                "ok": None,
                "left_out": f"{program} is not here" if self._kind == CUDA else "there is no GPU",
            }
        results: dict[str, Value] = {}
        is_clean = True
        finalists = {name: each for name, each in self._finalists(self._file()).items() if each}
        for name in (FIRST_GUESS, OURS):
            if name not in finalists:
                continue
            library = self._library(finalists[name][0])
            arguments = [self._kind, str(library), json.dumps(self._call["args"])]
            command = [path, *options, sys.executable, "-m", "benchmarks.gpu.run_once", *arguments]
            with TemporaryDirectory() as folder, hold_gpu(self._lock):
                process = subprocess.run(
                    command, capture_output=True, text=True, timeout=TOOL_SEC, cwd=folder, check=False
                )
            results[name] = {
                "status": process.returncode,
                "output": (process.stdout + process.stderr)[-3000:],
            }
            is_clean = (
                is_clean
                and process.returncode == 0
                and "ERROR SUMMARY: " not in process.stdout.replace("ERROR SUMMARY: 0 errors", "")
            )
        return {"ok": is_clean, "results": results}


def summary_of(measured: Sequence[MeasuredCandidate], waited_sec: float) -> Row:
    """Return the figures of a method's search; its idle share leaves out waits for other lanes."""
    times = [each.trial.latency_us for each in measured if each.trial.latency_us is not None]
    held_sec = sum(each.gpu_sec for each in measured)
    span_sec = measured[-1].at_sec if measured else 0.0
    own_sec = max(span_sec - waited_sec, held_sec, 1e-9)
    return {
        "trials": len(measured),
        "timed": len(times),
        "best_us": min(times, default=None),
        "span_sec": round(span_sec, 2),
        "waited_sec": round(waited_sec, 2),
        "gpu_sec": round(held_sec, 2),
        "idle_share": round(1 - held_sec / own_sec, 3),
    }


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> None:
    """Run one stage of the contest of one task."""
    DieWithParent(signal.SIGKILL, os.getppid())()
    stage, kind, home, name, seconds, builders = sys.argv[1:7]
    contest = Contest(kind, Path(home), name, float(seconds), int(builders))
    (contest.search if stage == SEARCH else contest.use_tools)()


if __name__ == "__main__":
    main()
