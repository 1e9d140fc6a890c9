"""Streams side by side, each in a process of its own on its own cores."""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

from benchmarks.cells import Cells
from benchmarks.oracle.stream import Plan, Stream
from mallorn.core.targets import Target
from mallorn.core.values.machine import Machine, peak_gflops
from mallorn.workers.interfaces.model_compiler import ModelTask


@dataclass(frozen=True)
class Cell:
    """A task on a target, and what to do about it."""

    model: str
    task: ModelTask
    target: Target
    machine: Machine
    data: Path
    candidates: int
    seed: int

    @property
    def name(self) -> str:
        kind = self.target.attrs.get("mcpu", self.target.kind)
        return f"{self.model}.{self.task.key[:12]}.{kind}-{self.target.num_cores}"


def run_all(cells: list[Cell], cores: list[list[int]], seconds: float) -> None:
    """All cells, as many at a time as there are groups of cores; each gets its share of the seconds."""
    waiting: Queue[Cell] = Queue()
    each_sec = seconds * len(cores) / max(1, len(cells))
    for cell in unfinished(cells, each_sec):
        waiting.put(cell)
    threads = [Thread(target=_serve, args=(waiting, group, each_sec)) for group in cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def unfinished(cells: list[Cell], seconds: float) -> list[Cell]:
    """Those that had neither all their candidates nor all their seconds before a run was broken off."""
    return [cell for cell in cells if not _finished(cell, seconds)]


def _finished(cell: Cell, seconds: float) -> bool:
    kept = Cells(cell.data)
    if cell.name not in kept:
        return False
    known = kept[cell.name]
    return bool(known["candidates"] >= cell.candidates or known["seconds"] >= seconds)


def _serve(waiting: "Queue[Cell]", cores: list[int], seconds: float) -> None:
    while True:
        try:
            cell = waiting.get_nowait()
        except Empty:
            return
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            print(cell.name, process.submit(_run, cell, cores, seconds).result(), flush=True)


def _run(cell: Cell, cores: list[int], seconds: float) -> str:
    os.sched_setaffinity(0, cores)
    begun = time.time()
    machine = cell.machine
    stream = Stream(cell.task, cell.target, machine, cell.data / f"{cell.name}.jsonl", cell.seed)
    contest = stream.run(Plan(cell.candidates, begun + seconds))
    known = {"model": cell.model, "target": cell.target.text, "task": asdict(cell.task)}
    figures = {
        "peak_gflops": peak_gflops(machine, ["float32"]),
        "memory_gbytes_per_sec": machine.memory_gbytes_per_sec,
        "machine": machine.to_stored_json(),
    }
    spent = {"seed": cell.seed, "seconds": time.time() - begun, "candidates": len(stream.trials)}
    Cells(cell.data).keep(cell.name, known | asdict(contest) | figures | spent)
    return f"{len(stream.trials)} candidates, first {contest.first_us}, best {contest.best_us}"
