"""Index of the prepared kernels: one folder per task, with a file of built kernels."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.gpu.cells import read_rows

INDEX: Final = "index.jsonl"
COMPLETE: Final = "complete.txt"  # written when all kernels are built; holds CHANCE [FIRST]
FIRST_GUESS: Final = "first guess"
DLIGHT: Final = "DLight"
CHANCE: Final = "chance"
OWN_KIND: Final = "first guess of a kind"  # of our own kinds of sketches
WGMMA: Final = "wgmma prototype"
WGMMA_ARCH: Final = "sm_90a"  # the only architecture with its instruction


@dataclass(frozen=True, slots=True)
class Kernel:
    """A library of one task; `means` says how its schedule was found, `kind` of which kind it is if it is
    one of our own."""

    cell: str
    task: str
    means: str
    file: str  # relative to the folder of all kernels
    kind: str = ""


def counts_below(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Return the number of built kernels per task and means, and others' errors by cell."""
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
    """Yield the built kernels, task by task, in the order of building."""
    for index in sorted(folder.glob(f"*/{INDEX}")):
        for row in read_rows(index):
            if row.get("file"):
                file = f"{index.parent.name}/{row['file']}"
                names = (str(row[name]) for name in ("cell", "task", "means"))
                yield Kernel(*names, file, str(row.get("kind", "")))
