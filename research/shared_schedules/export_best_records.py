"""Write the best record of every workload and measuring context to a folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from sqlalchemy.orm import Session

from db.dataset.snapshots import Progress, silent
from db.repositories.measuring_contexts import Contexts
from db.repositories.schedules import BestRecord, BestRecords
from db.repositories.sketches import Sketches
from db.repositories.snapshots import Sources
from db.repositories.targets import Targets
from db.repositories.workloads import Workloads, tir_of
from db.session import Database
from mallorn.core.errors import Conflict
from mallorn.core.stand_in_measurers import stand_in
from mallorn.core.targets import Target
from research.shared_schedules.folder_paths import (
    PROVENANCE,
    SharedRecord,
    directory_of,
    read_provenance,
    write_provenance,
    write_target,
)
from workers.interfaces.candidate_compiler import CandidateCompiler
from workers.interfaces.model_compiler import ModelCompiler, Tuned


@dataclass(slots=True)
class WrittenFolder:
    """How many records of a target were written to its directory, and how many not."""

    directory: Path
    records: int = 0
    left_out: int = 0  # records that this version of TVM cannot rebuild


def export_schedules(
    database: Database, root: Path, target: Target | None = None, progress: Progress = silent
) -> Iterator[WrittenFolder]:
    """Write a directory per target, or for one, replacing its databases; yield each result."""
    with CandidateCompiler() as compiler, ModelCompiler() as graphs:
        for target_id, place in _targets(database, target):
            with database.transaction() as session:  # `own` may store a new dataset key
                best = BestRecords(session).of_target(target_id, Sources(session).own().key)
            written = WrittenFolder(directory_of(root, place))
            _check(database, written.directory)
            for op, records in groupby(best, key=lambda record: record.op):
                _write(database, list(records), place, written.directory / op, (compiler, graphs), written)
                progress(written.records + written.left_out, len(best))
            if written.records:
                write_target(written.directory, place)
                yield written


def _check(database: Database, directory: Path) -> None:
    """Raise Conflict if the directory holds records that this dataset does not."""
    for file in sorted(directory.rglob(PROVENANCE)):
        provenance = read_provenance(file.parent)
        with database.session() as session:
            lost = [each for each in provenance if not BestRecords(session).knows(each.dataset, each.row)]
        if lost:
            count = "a record" if len(lost) == 1 else f"{len(lost)} records"
            raise Conflict(
                f"{file.parent} has {count} that this dataset has not",
                hint=f"mallorn schedules import {directory.parent}   (then export again)",
            )


def _targets(database: Database, target: Target | None) -> list[tuple[int, Target]]:
    """Return the real targets with their ids, or only `target` if it is real."""
    with database.session() as session:
        targets = [(row.id, Target(row.text)) for row in Targets(session).list()]
    selected = [each for each in targets if target is None or each[1].text == target.text]
    return [each for each in selected if not stand_in(each[1])]


def _write(
    database: Database,
    records: list[BestRecord],
    target: Target,
    directory: Path,
    children: tuple[CandidateCompiler, ModelCompiler],
    written: WrittenFolder,
) -> None:
    compiler, graphs = children
    with database.session() as session:
        pairs = [(_tuned(session, compiler, target, each), _measured(session, each)) for each in records]
    rebuilt = [(tuned, measured) for tuned, measured in pairs if tuned is not None]
    skipped = graphs.write_database(str(directory), target.text, [tuned for tuned, _ in rebuilt])
    lost = {each.index for each in skipped}
    write_provenance(directory, [measured for at, (_, measured) in enumerate(rebuilt) if at not in lost])
    written.records += len(rebuilt) - len(lost)
    written.left_out += len(records) - len(rebuilt) + len(lost)


def _tuned(session: Session, compiler: CandidateCompiler, target: Target, record: BestRecord) -> Tuned | None:
    candidate = record.trial.candidate
    tir = tir_of(Workloads(session).get(record.workload_id))
    sketch = Sketches(session).by_key([candidate.sketch])[candidate.sketch]
    trace = compiler.full_trace(tir, target.text, sketch.trace, candidate.decisions)
    return None if trace is None else Tuned(tir, trace, [us / 1e6 for us in record.trial.run_us])


def _measured(session: Session, record: BestRecord) -> SharedRecord:
    measured_on = Contexts(session).get(record.context_id).measured_on
    return SharedRecord.from_row(record, origin=record.trial.origin, measured_on=measured_on)
