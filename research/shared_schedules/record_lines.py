"""Records of schedule directories, compared and pruned without a database."""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from mallorn.core.errors import InvalidRequest
from mallorn.core.storable_json import compact_json
from mallorn.core.values.manifest import (
    MANIFEST,
    NOT_TIMED,
    RECORDS,
    UNTIMED_SEC,
    WORKLOADS,
    MeasuredOn,
    read_manifest,
)
from mallorn.research.shared_schedules.import_folders import BATCH
from mallorn.research.shared_schedules.target_folders import (
    PROVENANCE,
    iterate_databases,
    read_provenance,
    write_lines,
    write_provenance,
)
from mallorn.research.tuner_logs.metaschedule import hash_program
from mallorn.research.tuner_logs.read_json_lines import Problem, read_lines, run_times_us
from mallorn.workers.interfaces.model_compiler import open_sandboxed_compiler


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A line of `database_tuning_record.json`, with its workload and its origin."""

    directory: Path
    line: int  # from 1
    target: str
    workload: str  # digest of its program
    name: str
    trace: str
    latency_us: float  # infinite: it failed or was not timed
    measured_on: MeasuredOn


@dataclass(frozen=True, slots=True)
class ScheduleChange:
    """A workload whose fastest record differs between two directories."""

    change: str  # added, removed or changed
    name: str
    target: str
    before_us: float | None  # None: there is no timed record
    after_us: float | None


@dataclass(frozen=True, slots=True)
class PrunableRecord:
    """A record that pruning removes, and the reason; `file` is relative to the root."""

    file: str
    line: int
    name: str
    target: str
    reason: str


def read_records(root: Path) -> list[RecordLine]:
    """Return all records under `root`. Raises InvalidRequest for any other line."""
    records: list[RecordLine] = []
    for target, directory in iterate_databases(root):
        programs = dict(read_lines(directory / WORKLOADS, hash_program, _refuse))
        names, measured_on = dict(programs), MeasuredOn()
        if (directory / MANIFEST).is_file():
            manifest = read_manifest(directory / MANIFEST)
            if len(manifest.workloads) == len(programs):
                names = {index: workload.task for index, workload in enumerate(manifest.workloads)}
            measured_on = manifest.measured_on
        provenance = read_provenance(directory) if (directory / PROVENANCE).is_file() else []

        def parse(
            line: Any, programs: dict[int, str] = programs, names: dict[int, str] = names
        ) -> tuple[str, str, str, float]:
            index, (trace, run_secs, *_) = line
            times = () if UNTIMED_SEC in run_secs else run_times_us(run_secs)
            return programs[index], names[index], compact_json(trace), median(times or [inf])

        for number, (workload, name, trace, us) in read_lines(directory / RECORDS, parse, _refuse):
            context = measured_on
            if number < len(provenance):
                name, context = provenance[number].name, provenance[number].measured_on
            records.append(RecordLine(directory, number + 1, target.text, workload, name, trace, us, context))
    return records


def _refuse(problem: Problem) -> NoReturn:
    raise InvalidRequest(str(problem), hint="git checkout FILE   (or: mallorn tune MODEL)")


def compare_directories(left_root: Path, right_root: Path) -> list[ScheduleChange]:
    """Return the workloads, by target and name, whose fastest schedules differ."""
    left_records, right_records = _fastest(left_root), _fastest(right_root)
    changes = []
    for key in left_records.keys() | right_records.keys():
        left, right = left_records.get(key), right_records.get(key)
        if left and right and left.trace == right.trace:
            continue
        times = [item.latency_us if item and item.latency_us < inf else None for item in (left, right)]
        change = "added" if left is None else "removed" if right is None else "changed"
        names = [item.name for item in (right, left) if item]
        changes.append(ScheduleChange(change, names[0], key[0], *times))
    return sorted(changes, key=lambda change: (change.target, change.name))


def _fastest(root: Path) -> dict[tuple[str, str], RecordLine]:
    """Return each workload's record that TVM uses: the fastest, the first of equals."""
    fastest: dict[tuple[str, str], RecordLine] = {}
    for record in sorted(read_records(root), key=lambda record: record.latency_us):
        fastest.setdefault((record.target, record.workload), record)
    return fastest


def find_prunable(root: Path, targets: Collection[str] = ()) -> list[PrunableRecord]:
    """Return the records that do not rebuild, are slower than another, or of other targets.

    Times compare only within one measuring context. `targets` are the texts of those to
    keep; if it is empty, all are kept.
    """
    records = read_records(root)
    errors = _find_rebuild_errors(root, {record.directory: record.line for record in records})
    fastest: dict[tuple[str, ...], RecordLine] = {}
    pruned: list[PrunableRecord] = []
    for record in sorted(records, key=lambda record: record.latency_us):
        key = record.target, record.workload, record.measured_on.model_dump_json()
        if targets and record.target not in targets:
            reason = "its target is not named"
        elif (error := errors.get((record.directory, record.line))) is not None:
            reason = f"it does not rebuild: {error}"
        elif (rival := fastest.setdefault(key, record)) is not record:
            reason = f"line {rival.line} of {rival.directory.relative_to(root)} is as fast or faster"
        else:
            continue
        file = str((record.directory / RECORDS).relative_to(root))
        pruned.append(PrunableRecord(file, record.line, record.name, record.target, reason))
    return sorted(pruned, key=lambda row: (row.file, row.line))


def _find_rebuild_errors(root: Path, line_counts: dict[Path, int]) -> dict[tuple[Path, int], str]:
    with open_sandboxed_compiler(root) as graphs:
        return {
            (directory, problem.line): problem.error
            for directory, count in line_counts.items()
            for start in range(0, count, BATCH)
            for problem in graphs.read_metaschedule_log(str(directory.absolute()), start, BATCH).problems
            if problem.file == RECORDS and problem.error != NOT_TIMED
        }


def remove_records(root: Path, pruned: Collection[PrunableRecord]) -> None:
    """Delete these lines, and a database that has no others. Programs of deleted records
    stay in its file of workloads, since other lines count its lines."""
    for file in {row.file for row in pruned}:
        removed = {row.line for row in pruned if row.file == file}
        directory = (root / file).parent
        lines = (root / file).read_text().splitlines()
        remaining = [number for number in range(len(lines)) if number + 1 not in removed]
        if not remaining:
            for name in (RECORDS, WORKLOADS, PROVENANCE):
                (directory / name).unlink(missing_ok=True)
            continue
        write_lines(root / file, [lines[number] for number in remaining])
        if (directory / PROVENANCE).is_file():
            provenance = read_provenance(directory)
            write_provenance(directory, [provenance[number] for number in remaining])
