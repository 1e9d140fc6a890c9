"""Folders, methods and cells of part 3, for processes with and without TVM's compiler."""

from pathlib import Path
from typing import Final

from benchmarks.gpu.cells import Cells
from benchmarks.gpu.tasks import BY_NAME, Task

FOLDER: Final = "part3"  # in HOME: a folder a task with what comes back
SCRATCH: Final = "part3-scratch"  # in HOME: files of processes
PREBUILT: Final = "searched"  # in HOME: libraries built in advance, and right results
ORDER: Final = "order.json"  # in PREBUILT: what `prepare` decided
OURS: Final = "ours"
BY_CHANCE: Final = "chance"
STOCK: Final = "MetaSchedule"
METHODS: Final = (OURS, BY_CHANCE, STOCK)
SEED: Final = 0


def slug(task: Task) -> str:
    """Return a folder's name for a task."""
    return "".join(letter if letter.isalnum() else "-" for letter in task.name)


def is_finished(home: Path, name: str) -> bool:
    """Return whether all cells of a task are measured."""
    cells = Cells(home / FOLDER / slug(BY_NAME[name]) / "cells.jsonl")
    wanted = [*(f"{method}/{SEED}" for method in METHODS), "in turn", "counters"]
    return all(f"{name}/{each}" in cells for each in wanted)
