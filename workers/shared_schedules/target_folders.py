"""Layout of a schedules folder: a MetaSchedule JSON database per target and operator.

    llvm-znver4-2.4698dce24e19/
        target.json
        conv2d/
            database_workload.json          as stock MetaSchedule reads it
            database_tuning_record.json
            database_provenance.json        a line per record: dataset, searcher, host, time

Files are sorted and hold no time of writing, so the same records give the same bytes.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Final, NoReturn

from mallorn.core.errors import Conflict, InvalidRequest, NotFound
from mallorn.core.storable_json import compact_json, read_json
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.base import Value
from mallorn.core.values.manifest import (
    DATABASE,
    MANIFEST,
    NOT_TIMED,
    RECORDS,
    UNTIMED_SEC,
    WORKLOADS,
    MeasuredOn,
    read_manifest,
)
from mallorn.db.dataset.snapshots import Progress, ignore_progress
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.schedules import BestRecord, BestRecords
from mallorn.db.repositories.snapshots import Sources
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import Sketches, Workloads, tir_of
from mallorn.db.session import Database
from mallorn.wording.format_values import file_name
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.model_compiler import BadLine, ModelCompiler, Tuned, open_sandboxed_compiler
from mallorn.workers.sandbox.sandbox import FILE_BYTES
from mallorn.workers.sandbox.untrusted_files import copy_out, untrusted_folder
from mallorn.workers.shared_schedules.read_json_lines import hash_program, read_lines, run_times_us

PROVENANCE: Final = "database_provenance.json"
TARGET: Final = "target.json"
BATCH: Final = 64  # records in one call of the compiler
EXAMPLE: Final = "mallorn schedules export DIR   (makes one)"


class SharedRecord(Value):
    """A line of `database_provenance.json`: where, when and how a record was measured."""

    dataset: str
    row: int
    created_at: float
    origin: str
    name: str  # of the workload
    measured_on: MeasuredOn


def directory_of(root: Path, target: Target) -> Path:
    """Return the directory of a target, named by kind, processor, cores and key."""
    attrs = target.attrs
    parts = target.kind, attrs.get("mcpu") or attrs.get("arch") or attrs.get("tag"), attrs.get("num-cores")
    label = "-".join(str(part).replace("/", "-") for part in parts if part)
    return root / file_name(label, f".{target.key}")


def iterate_databases(root: Path) -> Iterator[tuple[Target, Path]]:
    """Yield every database under `root` with its target, which a `target.json` above it or
    the manifest of a job's export names. Raises NotFound if there is none."""
    files = sorted(file for name in (TARGET, MANIFEST) for file in root.rglob(name))
    if not files:
        raise NotFound(f"{root} is not a folder of schedules: there is no {TARGET} in it", hint=EXAMPLE)
    for file in files:
        text = read_manifest(file).target if file.name == MANIFEST else file.read_text(errors="replace")
        target = parse_target(text)
        yield from ((target, records.parent) for records in sorted(file.parent.rglob(RECORDS)))


def write_provenance(directory: Path, lines: list[SharedRecord]) -> None:
    texts = [json.dumps(line.model_dump(mode="json"), sort_keys=True) for line in lines]
    write_lines(directory / PROVENANCE, texts)


def write_lines(file: Path, lines: list[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), newline="\n")


def read_provenance(directory: Path) -> list[SharedRecord]:
    """Return a database's provenance lines. Raises InvalidRequest if missing or invalid."""
    file = directory / PROVENANCE
    try:
        return [SharedRecord.model_validate(read_json(line)) for line in file.read_text().splitlines()]
    except (OSError, ValueError) as error:
        problem = "is missing" if isinstance(error, OSError) else "cannot be read"
        raise InvalidRequest(f"{file} {problem}", hint=EXAMPLE) from None


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


def _refuse(problem: BadLine) -> NoReturn:
    raise InvalidRequest(str(problem), hint="git checkout FILE   (or: mallorn tune MODEL)")


def compare_directories(left_root: Path, right_root: Path) -> list[dict[str, object]]:
    """Return the workloads, by target and name, whose fastest schedules differ: `added`,
    `removed` or `changed`, with both times in us; None where there is no timed record."""
    left_records, right_records = _fastest(left_root), _fastest(right_root)
    changes: list[dict[str, object]] = []
    for key in left_records.keys() | right_records.keys():
        left, right = pair = left_records.get(key), right_records.get(key)
        if left and right and left.trace == right.trace:
            continue
        before_us, after_us = (item.latency_us if item and item.latency_us < inf else None for item in pair)
        change = "added" if left is None else "removed" if right is None else "changed"
        [name, *_] = [item.name for item in pair if item]
        names: dict[str, object] = {"change": change, "name": name}
        changes.append(names | {"before_us": before_us, "after_us": after_us, "target": key[0]})
    return sorted(changes, key=lambda row: (str(row["target"]), str(row["name"])))


def _fastest(root: Path) -> dict[tuple[str, str], RecordLine]:
    """Return each workload's record that TVM uses: the fastest, the first of equals."""
    fastest: dict[tuple[str, str], RecordLine] = {}
    for record in sorted(read_records(root), key=lambda record: record.latency_us):
        fastest.setdefault((record.target, record.workload), record)
    return fastest


def find_prunable(root: Path) -> list[tuple[RecordLine, str]]:
    """Return the records that do not rebuild or are slower than another, with reasons.
    Times compare only within one measuring context."""
    records = read_records(root)
    line_counts = {record.directory: record.line for record in records}
    with open_sandboxed_compiler(root) as graphs:
        errors = {
            (directory, problem.line): problem.error
            for directory, count in line_counts.items()
            for start in range(0, count, BATCH)
            for problem in graphs.read_metaschedule_log(str(directory.absolute()), start, BATCH).problems
            if problem.file == RECORDS and problem.error != NOT_TIMED
        }
    fastest: dict[tuple[str, ...], RecordLine] = {}
    pruned: list[tuple[RecordLine, str]] = []
    for record in sorted(records, key=lambda record: record.latency_us):
        key = record.target, record.workload, record.measured_on.model_dump_json()
        if (error := errors.get((record.directory, record.line))) is not None:
            reason = f"it does not rebuild: {error}"
        elif (rival := fastest.setdefault(key, record)) is not record:
            reason = f"line {rival.line} of {rival.directory.relative_to(root)} is as fast or faster"
        else:
            continue
        pruned.append((record, reason))
    return sorted(pruned, key=lambda item: (item[0].directory, item[0].line))


def remove_records(records: Collection[RecordLine]) -> None:
    """Delete these lines, and a database that has no others. Programs of deleted records
    stay in its file of workloads, since other lines count its lines."""
    for directory in {record.directory for record in records}:
        numbers = {record.line - 1 for record in records if record.directory == directory}
        lines = (directory / RECORDS).read_text().splitlines()
        remaining = [number for number in range(len(lines)) if number not in numbers]
        if not remaining:
            for name in (RECORDS, WORKLOADS, PROVENANCE):
                (directory / name).unlink(missing_ok=True)
            continue
        write_lines(directory / RECORDS, [lines[number] for number in remaining])
        if (directory / PROVENANCE).is_file():
            provenance = read_provenance(directory)
            write_provenance(directory, [provenance[number] for number in remaining])


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
                text = json.dumps(real_target.attrs, indent=1, sort_keys=True)
                (folder.directory / TARGET).write_text(f"{text}\n")
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
