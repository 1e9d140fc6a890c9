"""Import records of shared folders and of exports as measurements of other hosts."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy.orm import Session

from mallorn.core.errors import InvalidRequest
from mallorn.core.outcomes import Outcome
from mallorn.core.states import SEARCH, MeasurementKind
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.manifest import MANIFEST, RECORDS, WORKLOADS, MeasuredOn, read_manifest
from mallorn.db.dataset.snapshots import Progress, ignore_progress
from mallorn.db.measurement_codec import pack_decisions, pack_times
from mallorn.db.repositories.measurements import ForeignRows
from mallorn.db.repositories.workloads import Workloads
from mallorn.db.session import Database
from mallorn.workers.interfaces import model_compiler
from mallorn.workers.model_import.run import new_workload
from mallorn.workers.round.store_referenced_rows import store_sketches
from mallorn.workers.shared_schedules.read_json_lines import LoadedLog, Report
from mallorn.workers.shared_schedules.target_folders import BATCH, iterate_databases, read_provenance

ID_BYTES: Final = 7  # bytes of a row id, so that it is a positive 64-bit integer


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a record: its dataset, its searcher, and the measuring context of its times."""

    dataset: str  # key of the measuring dataset, or one derived from the log
    origin: str  # origin to store for its candidate
    created_at: float
    measured_on: MeasuredOn
    row: int | None = None  # its id in that dataset; None: use a hash of the record


def store_records(
    session: Session,
    log: model_compiler.RestoredLog,
    provenance_of: Callable[[model_compiler.Restored], Provenance],
    names: Mapping[str, str] | None = None,
) -> int:
    """Store new records; return how many. `names` are the tasks' names by workload."""
    tasks = [record.task for record in log.records]
    renamed = [replace(task, name=(names or {}).get(task.key, task.op)) for task in tasks]
    workloads = [new_workload(task, log.tvm_version) for task in renamed]
    workload_ids = Workloads(session).ensure_many(list({new.key: new for new in workloads}.values()))
    sketch_ids = store_sketches(session, [record.sketch for record in log.records], imported=True)
    foreign_rows = ForeignRows(session)
    rows: list[dict[str, object]] = []
    for record in log.records:
        provenance = provenance_of(record)
        target, dataset = Target(record.target), provenance.dataset
        row = _row(record, provenance) | foreign_rows.references(target, dataset, provenance.measured_on)
        ids = {"workload_id": workload_ids[record.task.key], "sketch_id": sketch_ids[record.sketch.key]}
        rows.append(row | ids)
    return foreign_rows.add(rows)


def _row(record: model_compiler.Restored, provenance: Provenance) -> dict[str, object]:
    run_us = tuple(seconds * 1e6 for seconds in record.run_secs)
    content = record.task.key, record.sketch.key, list(record.decisions), record.target, run_us
    digest = int.from_bytes(hashlib.sha256(repr(content).encode()).digest()[:ID_BYTES])
    return {
        "slot": 0,
        "kind": MeasurementKind.TRIAL.kind_after_import,
        "outcome": Outcome.OK if run_us else Outcome.RUN_ERROR,
        "origin": provenance.origin,
        "source_row": digest if provenance.row is None else provenance.row,
        "created_at": provenance.created_at,
        "decisions": pack_decisions(record.decisions),
        "latency_us": median(run_us) if run_us else None,
        "run_us": pack_times(run_us) if run_us else None,
    }


def import_schedules(
    database: Database, root: Path, report: Report, progress: Progress = ignore_progress
) -> LoadedLog:
    """Store records that this database lacks; `report` is called for each invalid one."""
    counts = LoadedLog()
    directories = list(iterate_databases(root))
    with model_compiler.open_sandboxed_compiler(root) as graphs:
        for number, (target, directory) in enumerate(directories, 1):
            counts.add(_import_directory(database, graphs, target, directory, report))
            progress(number, len(directories))
    return counts


def _import_directory(
    database: Database, graphs: model_compiler.ModelCompiler, target: Target, directory: Path, report: Report
) -> LoadedLog:
    counts, provenance = LoadedLog(), read_provenance(directory)

    def provenance_of(record: model_compiler.Restored) -> Provenance:
        line = provenance[record.line - 1]
        return Provenance(line.dataset, line.origin, line.created_at, line.measured_on, line.row)

    for start in range(0, len(provenance), BATCH):
        log = graphs.read_metaschedule_log(str(directory), start, min(BATCH, len(provenance) - start))
        records = [record for record in log.records if record.target == target.text]
        for bad in log.problems:
            report(replace(bad, file=str(directory / bad.file)))
        for record in log.records:
            if record.target != target.text:
                words = f"the record is for another target: {record.target}"
                report(model_compiler.BadLine(str(directory / RECORDS), record.line, words))
        names = {record.task.key: provenance[record.line - 1].name for record in records}
        with database.transaction() as session:
            restored = model_compiler.RestoredLog(records, [], log.tvm_version, log.lines)
            new_count = store_records(session, restored, provenance_of, names)
        counts.add(LoadedLog(new_count, len(records) - new_count))
    return counts


def find_databases(path: Path) -> list[Path]:
    """Return the directories under a path, at any depth, that hold a MetaSchedule database,
    or the directory to which `path` belongs as a file of one."""
    if path.is_file():
        return [path.parent] if path.name in (RECORDS, WORKLOADS) else []
    return sorted({file.parent for file in path.rglob(RECORDS)})


def load_tuning_export(database: Database, directory: Path, report: Report) -> LoadedLog:
    """Store a tuning export's new records. Raises InvalidRequest if bad or unmeasured."""
    manifest = read_manifest(directory / MANIFEST)
    if manifest.mode != SEARCH:
        raise InvalidRequest(
            f"the {manifest.mode} schedules in {directory} were not measured",
            hint="mallorn tune MODEL   (measures known schedules, and exports the best)",
        )
    with model_compiler.open_sandboxed_compiler(directory / WORKLOADS, directory / RECORDS) as graphs:
        restored = graphs.read_schedule_directory(str(directory), parse_target(manifest.target).text)
    for bad in restored.problems:
        report(replace(bad, file=str(directory / bad.file)))
    tuned_at = manifest.tuned_at or (directory / RECORDS).stat().st_mtime
    dataset = uuid5(NAMESPACE_URL, f"mallorn:{manifest.job}").hex
    log = Provenance(dataset, "export", tuned_at, manifest.measured_on)
    names = {entry.workload: entry.task for entry in manifest.workloads}
    with database.transaction() as session:
        new_count = store_records(session, restored, lambda _: log, names)
    return LoadedLog(new_count, len(restored.records) - new_count)
