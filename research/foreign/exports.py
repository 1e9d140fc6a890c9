"""Reads an export of `mallorn tune`: its schedules become foreign measurements of this dataset."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy.orm import Session

from db.codec import pack_decisions, pack_times
from db.repositories.contexts import Contexts
from db.repositories.foreign_rows import ForeignRows
from db.repositories.snapshots import Sources
from db.repositories.targets import Targets
from db.repositories.workloads import Workloads
from db.session import Database
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.manifest import MANIFEST, RECORDS, Manifest, read_manifest
from research.foreign.lines import LoadedLog, Problem, Report
from workers.faces.graphs import Graphs, Restored, RestoredLog
from workers.importing.run import new_workload
from workers.round.rows import store_sketches

ORIGIN: Final = "export"
ID_BYTES: Final = 7  # of a row, which has to be positive in 64 bits


def load_export(database: Database, directory: Path, report: Report) -> LoadedLog:
    """Store an export's schedules unless they are here. Raises InvalidRequest for an invalid manifest."""
    manifest = read_manifest(directory / MANIFEST)
    target = parse_target(manifest.target)
    with Graphs() as graphs:
        found = graphs.read_export(str(directory), target.text)
    for bad in found.problems:
        report(Problem(str(directory / bad.file), bad.line, bad.error))
    with database.transaction() as session:
        rows = _rows(session, found, target, manifest, (directory / RECORDS).stat())
        added = ForeignRows(session).add(rows)
    return LoadedLog(added, len(rows) - added, len(found.problems))


def _rows(
    session: Session, found: RestoredLog, target: Target, manifest: Manifest, file: os.stat_result
) -> list[dict[str, Any]]:
    names = {entry.workload: entry.task for entry in manifest.workloads}
    tasks = [record.task for record in found.records]
    named = [replace(task, name=names.get(task.key, task.op)) for task in tasks]
    workloads = [new_workload(task, found.tvm_version) for task in named]
    workload_ids = Workloads(session).ensure_many(list({new.key: new for new in workloads}.values()))
    sketch_ids = store_sketches(session, [record.sketch for record in found.records])
    target_id = Targets(session).ensure(target).id
    common = {
        "source_id": Sources(session).ensure(uuid5(NAMESPACE_URL, f"mallorn:{manifest.job}").hex),
        "target_id": target_id,
        "context_id": Contexts(session).ensure(target_id, **manifest.measured_on.model_dump()).id,
        "created_at": manifest.tuned_at or file.st_mtime,
    }
    return [
        common
        | _row(record, target)
        | {
            "workload_id": workload_ids[record.task.key],
            "sketch_id": sketch_ids[record.sketch.key],
        }
        for record in found.records
    ]


def _row(record: Restored, target: Target) -> dict[str, Any]:
    run_us = tuple(seconds * 1e6 for seconds in record.run_secs)
    said = record.task.key, record.sketch.key, list(record.decisions), target.text, run_us
    return {
        "kind": MeasurementKind.TRIAL.foreign,
        "slot": 0,
        "outcome": Outcome.OK,
        "origin": ORIGIN,
        "source_row": int.from_bytes(hashlib.sha256(repr(said).encode()).digest()[:ID_BYTES]),
        "decisions": pack_decisions(record.decisions),
        "latency_us": median(run_us),
        "run_us": pack_times(run_us),
    }
