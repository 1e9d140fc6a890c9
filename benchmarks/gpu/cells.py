"""Results of a part: one JSON line per cell, written as soon as it is measured."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from mallorn.workers.device.detect_host import read_host_facts

Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"
Row: TypeAlias = "dict[str, Value]"

BEGUN: Final = "begun"
#: File in which `prepare` stores commit, host and versions of the kernels' build.
ORIGIN: Final = "origin.json"
_MOST_STARTS: Final = 2  # of a cell; if both starts ended the process, the cell fails


class Unfinished(Exception):
    """Raised if time ran out before a measurement ended; a later run repeats it."""


class Cells:
    """The cells of a part, in the file `own` and in a copy; both are merged when opened.

    A killed process leaves at most one incomplete line, which the next process drops.
    """

    def __init__(self, own: Path, copy: Path | None = None) -> None:
        self._files = [own, *([copy] if copy else [])]
        for file in self._files:
            file.parent.mkdir(parents=True, exist_ok=True)
        self._rows = list(read_rows(own))
        for row in read_rows(copy) if copy else ():
            if BEGUN not in row and str(row["cell"]) not in self:
                self._rows.append(row)
        for file in self._files:
            draft = file.with_suffix(".part")
            draft.write_text("".join(f"{json.dumps(row)}\n" for row in self._rows))
            draft.rename(file)

    def __contains__(self, name: str) -> bool:
        return any(row["cell"] == name and BEGUN not in row for row in self._rows)

    def rows(self) -> list[Row]:
        """Return the rows of all finished cells, oldest first."""
        return [row for row in self._rows if BEGUN not in row]

    def keep(self, name: str, /, **content: Value) -> None:
        """Append a finished cell."""
        self._append({"cell": name, **content})

    def begin(self, name: str) -> bool:
        """Record a start; after two starts without an end, store a failure and return False."""
        starts = sum(1 if row[BEGUN] else -1 for row in self._rows if row["cell"] == name and BEGUN in row)
        if starts >= _MOST_STARTS:
            self.keep(name, ok=False, error="the process that ran it ended twice")
            return False
        self._append({"cell": name, BEGUN: True})
        return True

    def measure(self, name: str, measurement: Callable[[], Row]) -> None:
        """Run a measurement unless its cell is finished, and store its result or its error.

        After Unfinished, no cell is stored and the start does not count.
        """
        if name in self or not self.begin(name):
            return
        started_sec = time.monotonic()
        try:
            content: Row = {"ok": True, **measurement()}
        except Unfinished:
            self._append({"cell": name, BEGUN: False})
            return
        except Exception as error:
            content = {"ok": False, "error": f"{type(error).__name__}: {error}"[:500]}
        content["took_sec"] = round(time.monotonic() - started_sec, 3)
        self.keep(name, **content)

    def _append(self, row: Row) -> None:
        self._rows.append(row)
        for file in self._files:
            with file.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
                lines.flush()
                os.fsync(lines.fileno())


def keep_origin(cells: Cells, origin: Path) -> None:
    """Store the kernels' origin and this machine's processor and Python, once."""
    if "origin" in cells or not origin.exists():
        return
    machine: Row = {name: fact for name, fact in dict(read_host_facts()).items() if name != "hostname"}
    local: Row = {"machine": machine, "python_there": platform.python_version()}
    cells.keep("origin", ok=True, **json.loads(origin.read_text()), **local)


def read_rows(file: Path) -> Iterator[Row]:
    """Yield the rows of all complete lines of a file of cells; none if it does not exist."""
    if not file.exists():
        return
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            try:
                yield json.loads(line)
            except ValueError:
                continue
