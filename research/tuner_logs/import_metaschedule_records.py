"""Import exports of `mallorn tune` and stock MetaSchedule logs as measurements."""

from pathlib import Path
from typing import Final

from mallorn.core.errors import InvalidRequest
from mallorn.core.states import SEARCH
from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import MANIFEST, RECORDS, WORKLOADS, MeasuredOn, read_manifest
from mallorn.db.repositories.tuner_log_records import STOCK
from mallorn.db.session import Database
from mallorn.research.tuner_logs.read_json_lines import LoadedLog, Problem, Report
from mallorn.research.tuner_logs.store_records import Provenance, derive_dataset_key, store_records
from mallorn.workers.interfaces.model_compiler import (
    BadLine,
    ModelCompiler,
    RestoredLog,
    open_sandboxed_compiler,
)
from mallorn.workers.subprocesses.errors import ChildCrashed, ChildTimeout

BATCH: Final = 64  # lines in one call and one transaction
ORIGIN: Final = "metaschedule"
# A log names its target, but no host, no evaluator and no time of measurement.
LOG: Final = Provenance(STOCK, ORIGIN, 0.0, MeasuredOn(host_class="unknown", evaluator={"log": ORIGIN}))


def load_metaschedule(database: Database, directory: Path, report: Report) -> tuple[LoadedLog, set[int]]:
    """Store records that TVM can rebuild; return counts, and the lines of all others."""
    counts, other_lines = LoadedLog(), set[int]()
    with (directory / RECORDS).open("rb") as lines:
        total = sum(1 for _ in lines)
    with open_sandboxed_compiler(directory / WORKLOADS, directory / RECORDS) as graphs:
        for start in range(0, total, BATCH):
            log = _read(graphs, directory, start, min(BATCH, total - start))
            for bad in log.problems:
                if bad.file == RECORDS:
                    other_lines.add(bad.line)
                else:
                    report(Problem(str(directory / bad.file), bad.line, bad.error))
            with database.transaction() as session:
                new_count = store_records(session, log, lambda _: LOG)
            counts.added += new_count
            counts.known += len(log.records) - new_count
    return counts, other_lines


def _read(graphs: ModelCompiler, directory: Path, start: int, count: int) -> RestoredLog:
    """Read lines; after a crash or timeout, halve the range until the bad line is found."""
    try:
        return graphs.read_metaschedule_log(str(directory), start, count)
    except (ChildCrashed, ChildTimeout) as error:
        if count == 1:
            return RestoredLog([], [BadLine(RECORDS, start + 1, error.message)], "", 1)
        half = count // 2
        first = _read(graphs, directory, start, half)
        second = _read(graphs, directory, start + half, count - half)
        version = first.tvm_version or second.tvm_version
        return RestoredLog(first.records + second.records, first.problems + second.problems, version, count)


EXPORT: Final = "export"


def load_tuning_export(database: Database, directory: Path, report: Report) -> LoadedLog:
    """Store a tuning export's new records. Raises InvalidRequest if bad or unmeasured."""
    manifest = read_manifest(directory / MANIFEST)
    if manifest.mode != SEARCH:
        raise InvalidRequest(
            f"the {manifest.mode} schedules in {directory} were not measured",
            hint="mallorn tune MODEL   (measures known schedules, and exports the best)",
        )
    with open_sandboxed_compiler(directory / WORKLOADS, directory / RECORDS) as graphs:
        restored = graphs.read_schedule_directory(str(directory), parse_target(manifest.target).text)
    for bad in restored.problems:
        report(Problem(str(directory / bad.file), bad.line, bad.error))
    tuned_at = manifest.tuned_at or (directory / RECORDS).stat().st_mtime
    log = Provenance(derive_dataset_key(f"mallorn:{manifest.job}"), EXPORT, tuned_at, manifest.measured_on)
    names = {entry.workload: entry.task for entry in manifest.workloads}
    with database.transaction() as session:
        new_count = store_records(session, restored, lambda _: log, names)
    return LoadedLog(new_count, len(restored.records) - new_count, len(restored.problems))
