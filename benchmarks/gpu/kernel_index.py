"""The prepared kernels: a folder for each task, with an index of what was built there."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.gpu.cells import read_rows

INDEX: Final = "index.jsonl"
COMPLETE: Final = "complete.txt"  # holds how many kernels by chance were wanted, when all are built
FIRST_GUESS: Final = "first guess"
DLIGHT: Final = "DLight"
CHANCE: Final = "chance"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A library of one task, and by which means its schedule was found."""

    cell: str
    task: str
    means: str
    file: str  # below the folder of all kernels


def counts_below(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Return how many kernels of each task and means were built, and the errors of all others by cell."""
    built: Counter[str] = Counter()
    errors: dict[str, str] = {}
    for index in sorted(folder.glob(f"*/{INDEX}")):
        for row in read_rows(index):
            if row.get("file"):
                built[f"{row['task']}: {row['means']}"] += 1
            elif "error" in row:
                errors[str(row["cell"])] = str(row["error"])
    return dict(built), errors


def kernels_below(folder: Path) -> Iterator[Kernel]:
    """Yield the kernels that were built, task by task, in the order in which they were built."""
    for index in sorted(folder.glob(f"*/{INDEX}")):
        for row in read_rows(index):
            if row.get("file"):
                file = f"{index.parent.name}/{row['file']}"
                yield Kernel(str(row["cell"]), str(row["task"]), str(row["means"]), file)
