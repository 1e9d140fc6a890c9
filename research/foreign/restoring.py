"""Stock MetaSchedule's logs as measurements: their programs become workloads, their traces candidates."""

from pathlib import Path
from typing import Final

from db.dataset.snapshots import Progress
from db.repositories.foreign_records import STOCK
from db.session import Database
from mallorn.core.values.manifest import RECORDS, MeasuredOn
from research.foreign.lines import LoadedLog, Problem, Report
from research.foreign.rows import Provenance, store_records
from workers.children.errors import ChildCrashed, ChildTimeout
from workers.faces.graphs import BadLine, Graphs, RestoredLog

BATCH: Final = 64  # lines in one call and one transaction
ORIGIN: Final = "metaschedule"
# The log says on which target, and neither on which host nor how its times were taken, nor when.
LOG: Final = Provenance(STOCK, ORIGIN, 0.0, MeasuredOn(host_class="unknown", evaluator={"log": ORIGIN}))


def load_metaschedule(
    database: Database, directory: Path, report: Report, progress: Progress
) -> tuple[LoadedLog, set[int]]:
    """Store every record that rebuilds here; what became of those, and which lines (from 1) do not."""
    loaded, left = LoadedLog(), set[int]()
    with (directory / RECORDS).open("rb") as lines:
        total = sum(1 for _ in lines)
    with Graphs() as graphs:
        for start in range(0, total, BATCH):
            found = _read(graphs, directory, start, min(BATCH, total - start))
            for bad in found.problems:
                if bad.file == RECORDS:
                    left.add(bad.line)
                else:
                    report(Problem(str(directory / bad.file), bad.line, bad.error))
            with database.transaction() as session:
                added = store_records(session, found, lambda _: LOG)
            loaded.added += added
            loaded.known += len(found.records) - added
            progress(min(start + BATCH, total), total)
    return loaded, left


def _read(graphs: Graphs, directory: Path, start: int, count: int) -> RestoredLog:
    """Lines that kill or hold up their reader stay as they are: by halves, until each of them is alone."""
    try:
        return graphs.read_log(str(directory), start, count)
    except (ChildCrashed, ChildTimeout) as error:
        if count == 1:
            return RestoredLog([], [BadLine(RECORDS, start + 1, error.message)], "", 1)
        half = count // 2
        first = _read(graphs, directory, start, half)
        second = _read(graphs, directory, start + half, count - half)
        version = first.tvm_version or second.tvm_version
        return RestoredLog(first.records + second.records, first.problems + second.problems, version, count)
