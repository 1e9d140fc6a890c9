"""Write the fastest tuning record of every workload and measuring context to a folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from mallorn.core.errors import Conflict
from mallorn.core.targets import Target
from mallorn.core.values.manifest import DATABASE
from mallorn.db.dataset.take_snapshots import Progress, ignore_progress
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.schedules import BestRecord, BestRecords
from mallorn.db.repositories.sketches import Sketches
from mallorn.db.repositories.snapshots import Sources
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import Workloads, tir_of
from mallorn.db.session import Database
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.model_compiler import ModelCompiler, Tuned, open_sandboxed_compiler
from mallorn.workers.sandbox.sandbox import FILE_BYTES
from mallorn.workers.sandbox.untrusted_files import copy_out, untrusted_folder
from mallorn.workers.shared_schedules.target_folders import (
    PROVENANCE,
    SharedRecord,
    directory_of,
    read_provenance,
    write_provenance,
    write_target,
)


@dataclass(slots=True)
class WrittenFolder:
    """Counts of a target's records that were written to its directory or left out."""

    directory: Path
    records: int = 0
    left_out: int = 0  # records that this version of TVM cannot rebuild


def export_schedules(
    database: Database, root: Path, target: Target | None = None, progress: Progress = ignore_progress
) -> Iterator[WrittenFolder]:
    """Write the best records of each target, or of `target`, to a directory; yield counts.
    Raises Conflict if a directory holds records that this database lacks."""
    with (
        untrusted_folder("mallorn-sketches-") as room,
        untrusted_folder("mallorn-records-") as records_room,
        CandidateCompiler(room=room) as compiler,
        open_sandboxed_compiler(writes=[records_room]) as graphs,
    ):
        with database.session() as session:
            targets = [(row.id, Target(row.text)) for row in Targets(session).list()]
        for target_id, real_target in targets:
            if real_target.virtual_device or (target is not None and real_target.text != target.text):
                continue
            with database.transaction() as session:  # `own` may store a new dataset key
                best = BestRecords(session).of_target(target_id, Sources(session).own().key)
            folder = WrittenFolder(directory_of(root, real_target))
            for file in sorted(folder.directory.rglob(PROVENANCE)):
                provenance = read_provenance(file.parent)
                with database.session() as session:
                    known = BestRecords(session).has_row
                    unknown = [record for record in provenance if not known(record.dataset, record.row)]
                if unknown:
                    count = "a record" if len(unknown) == 1 else f"{len(unknown)} records"
                    raise Conflict(
                        f"{file.parent} has {count} that this dataset lacks",
                        hint=f"mallorn schedules import {folder.directory.parent}   (then export again)",
                    )
            for op, group in groupby(best, key=lambda record: record.op):
                records, directory = list(group), folder.directory / op
                _write(database, records, real_target, directory, compiler, graphs, records_room, folder)
                progress(folder.records + folder.left_out, len(best))
            if folder.records:
                write_target(folder.directory, real_target)
                yield folder


def _write(
    database: Database,
    records: list[BestRecord],
    target: Target,
    directory: Path,
    compiler: CandidateCompiler,
    graphs: ModelCompiler,
    records_room: Path,
    folder: WrittenFolder,
) -> None:
    schedules: list[Tuned] = []
    provenance: list[SharedRecord] = []
    with database.session() as session:
        for record in records:
            candidate = record.trial.candidate
            tir = tir_of(Workloads(session).get(record.workload_id))
            sketch = Sketches(session).by_key([candidate.sketch])[candidate.sketch]
            trace = compiler.full_trace(tir, target.text, sketch.trace, candidate.decisions)
            if trace is None:
                continue
            schedules.append(Tuned(tir, trace, [us / 1e6 for us in record.trial.run_us]))
            context = Contexts(session).get(record.context_id)
            provenance.append(
                SharedRecord.from_row(record, origin=record.trial.origin, measured_on=context.measured_on)
            )
    skipped_rows = graphs.write_database(str(records_room), target.text, schedules)
    directory.mkdir(parents=True, exist_ok=True)
    for name in DATABASE:
        copy_out(records_room, name, new := directory / f".{name}", FILE_BYTES)
        new.replace(directory / name)
    left_out = {row.index for row in skipped_rows}
    write_provenance(directory, [line for i, line in enumerate(provenance) if i not in left_out])
    folder.records += len(schedules) - len(left_out)
    folder.left_out += len(records) - len(schedules) + len(left_out)
