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
IN_TURN: Final = "in turn"
COUNTERS: Final = "counters"


def slug(task: Task) -> str:
    """Return a folder's name for a task."""
    return "".join(letter if letter.isalnum() else "-" for letter in task.name)


def has_cell(home: Path, name: str, cell: str) -> bool:
    """Return whether a task's cell is measured: IN_TURN ends its searches, COUNTERS the tools."""
    return f"{name}/{cell}" in Cells(home / FOLDER / slug(BY_NAME[name]) / "cells.jsonl")
