"""Results of a part: one JSON line for each cell, written as soon as it is known."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"
Row: TypeAlias = "dict[str, Value]"

BEGUN: Final = "begun"
#: What `prepare` writes of the commit, host and versions that the kernels were built by.
ORIGIN: Final = "origin.json"
_MOST_STARTS: Final = 2  # of a cell that ended neither time: it ends the process that runs it


class Unfinished(Exception):
    """The time was over before a measurement was; it goes on in a later run of the part."""


class Cells:
    """The cells of a part, kept in the file `own` and in its copy; each takes what the other knows.

    A process that is killed leaves at most half a line, which the next one drops.
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
            half = file.with_suffix(".part")
            half.write_text("".join(f"{json.dumps(row)}\n" for row in self._rows))
            half.rename(file)

    def __contains__(self, name: str) -> bool:
        return any(row["cell"] == name and BEGUN not in row for row in self._rows)

    def rows(self) -> list[Row]:
        """Return the rows of all cells that are known, oldest first."""
        return [row for row in self._rows if BEGUN not in row]

    def keep(self, name: str, /, **content: Value) -> None:
        """Append a cell."""
        self._append({"cell": name, **content})

    def begin(self, name: str) -> bool:
        """Note that a cell begins; return False, and keep it as failed, if it ended its process twice."""
        starts = sum(1 if row[BEGUN] else -1 for row in self._rows if row["cell"] == name and BEGUN in row)
        if starts >= _MOST_STARTS:
            self.keep(name, ok=False, error="the process that ran it ended twice")
            return False
        self._append({"cell": name, BEGUN: True})
        return True

    def measure(self, name: str, measurement: Callable[[], Row]) -> None:
        """Run a measurement unless its cell is known, and keep what it returns or raises.

        Of Unfinished no cell is kept, and the start does not count.
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
    """Keep what was prepared where, and the processor and Python of this machine, once."""
    if "origin" in cells or not origin.exists():
        return
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = {line.partition(": ")[2] for line in lines if line.startswith("model name")}
    machine: Row = {"cpu": ", ".join(sorted(models)), "cores": os.cpu_count() or 1}
    there: Row = {"machine": machine, "python_there": platform.python_version()}
    cells.keep("origin", ok=True, **json.loads(origin.read_text()), **there)


def read_rows(file: Path) -> Iterator[Row]:
    """Yield the whole lines of a file of cells; none if it does not exist."""
    if not file.exists():
        return
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            try:
                yield json.loads(line)
            except ValueError:
                continue
