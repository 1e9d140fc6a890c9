"""Records of schedule directories, compared and pruned without a database.

A directory is one that a job exported (with `manifest.json`), or a shared folder (with a
`target.json` per target); both hold TVM's databases at any depth.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Final

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.storable_json import read_json
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.manifest import (
    MANIFEST,
    NOT_TIMED,
    RECORDS,
    UNTIMED_SEC,
    WORKLOADS,
    MeasuredOn,
    read_manifest,
)
from mallorn.research.shared_schedules.target_folders import (
    PROVENANCE,
    TARGET,
    read_provenance,
    write_provenance,
)
from mallorn.workers.interfaces.model_compiler import open_sandboxed_compiler

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
BATCH: Final = 64  # records in one call


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A line of `database_tuning_record.json`, with its workload and its origin."""

    directory: Path
    line: int  # from 1
    target: str
    workload: str  # digest of its program
    name: str
    schedule: str  # digest of its trace
    latency_us: float | None  # None: not timed
    measured_on: MeasuredOn


@dataclass(frozen=True, slots=True)
class ScheduleChange:
    """A workload whose fastest record differs between two directories."""

    change: str  # added, removed or changed
    name: str
    target: str
    workload: str
    before_us: float | None
    after_us: float | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """A record that pruning removes, and the reason."""

    record: RecordLine
    reason: str


def iterate_directories(root: Path) -> Iterator[tuple[Target, Path]]:
    """Yield every database under `root` with its target, sorted by path.

    Raises NotFound if there is none, InvalidRequest if a database's target is unknown.
    """
    records = sorted(root.rglob(RECORDS))
    if not records:
        raise NotFound(
            f"{root} holds no schedules: no {RECORDS} in it",
            hint="mallorn tune MODEL --out DIR",
        )
    for directory in (path.parent for path in records):
        if (directory / MANIFEST).is_file():
            yield parse_target(read_manifest(directory / MANIFEST).target), directory
            continue
        places = (directory, *directory.parents[: len(directory.relative_to(root).parts)])
        file = next((place / TARGET for place in places if (place / TARGET).is_file()), None)
        if file is None:
            message = f"the target of {directory} is unknown: it has no {MANIFEST} and no {TARGET}"
            raise InvalidRequest(message, hint="mallorn dataset import DIR   (reads logs of stock TVM)")
        yield parse_target(file.read_text(errors="replace")), directory


def read_records(root: Path) -> list[RecordLine]:
    """Return all records under `root`. Raises InvalidRequest for any other line."""
    lines: list[RecordLine] = []
    for target, directory in iterate_directories(root):
        provenance = read_provenance(directory) if (directory / PROVENANCE).is_file() else []
        manifest = read_manifest(directory / MANIFEST) if (directory / MANIFEST).is_file() else None
        programs = (directory / WORKLOADS).read_text(errors="replace").splitlines()
        for number, text in enumerate((directory / RECORDS).read_text(errors="replace").splitlines(), 1):
            try:
                index, (trace, run_secs, *_) = read_json(text)
                workload = sha256(read_json(programs[index])[1].encode()).hexdigest()[:12]
                us = None if UNTIMED_SEC in run_secs else median(run_secs) * 1e6
            except (AttributeError, IndexError, TypeError, ValueError) as error:
                message = f"{directory / RECORDS}, line {number}, is no record of a schedule: {error}"
                raise InvalidRequest(message, hint="git checkout FILE   (or: mallorn tune MODEL)") from None
            name, measured_on = workload, manifest.measured_on if manifest else MeasuredOn()
            if len(provenance) >= number:
                name, measured_on = (
                    provenance[number - 1].name,
                    provenance[number - 1].measured_on,
                )
            elif manifest and len(manifest.workloads) == len(programs):
                name = manifest.workloads[index].task
            schedule = sha256(json.dumps(trace).encode()).hexdigest()[:12]
            lines.append(
                RecordLine(
                    directory,
                    number,
                    target.text,
                    workload,
                    name,
                    schedule,
                    us,
                    measured_on,
                )
            )
    return lines


def compare_directories(left_root: Path, right_root: Path) -> list[ScheduleChange]:
    """Return the workloads, by target and name, whose fastest schedules differ."""
    old, new = _fastest(read_records(left_root)), _fastest(read_records(right_root))
    changes = []
    for key in old.keys() | new.keys():
        left, right = old.get(key), new.get(key)
        record = right or left
        if record is None or (left and right and left.schedule == right.schedule):
            continue
        change = ADDED if left is None else REMOVED if right is None else CHANGED
        before_us, after_us = (line.latency_us if line else None for line in (left, right))
        changes.append(
            ScheduleChange(change, record.name, record.target, record.workload, before_us, after_us)
        )
    return sorted(changes, key=lambda change: (change.target, change.name, change.workload))


def _fastest(lines: Sequence[RecordLine]) -> dict[tuple[str, str], RecordLine]:
    """Return each workload's record that TVM uses: the fastest, the first of equals."""
    fastest: dict[tuple[str, str], RecordLine] = {}
    for line in lines:
        best = fastest.get(key := (line.target, line.workload))
        if best is None or _time_of(line) < _time_of(best):
            fastest[key] = line
    return fastest


def _time_of(line: RecordLine) -> float:
    return float("inf") if line.latency_us is None else line.latency_us


def find_prunable(root: Path, targets: Collection[str] = ()) -> list[Pruned]:
    """Return the records that do not rebuild, are slower than another, or of other targets.

    Times compare only within one measuring context. `targets` are the texts of those to
    keep; if it is empty, all are kept.
    """
    lines = read_records(root)
    errors = find_rebuild_errors(root)
    pruned, remaining = list[Pruned](), list[RecordLine]()
    for line in lines:
        error = errors.get((line.directory, line.line))
        if targets and line.target not in targets:
            pruned.append(Pruned(line, "it is of a target that is not named"))
        elif error is not None:
            pruned.append(Pruned(line, f"it does not rebuild: {error}"))
        else:
            remaining.append(line)
    contexts: dict[str, list[RecordLine]] = {}
    for line in remaining:
        contexts.setdefault(line.measured_on.model_dump_json(), []).append(line)
    for members in contexts.values():
        best = _fastest(members)
        for line in members:
            if (winner := best[line.target, line.workload]) is not line:
                pruned.append(
                    Pruned(
                        line,
                        f"line {winner.line} of {winner.directory / RECORDS} is as fast or faster",
                    )
                )
    return sorted(pruned, key=lambda item: (item.record.directory, item.record.line))


def find_rebuild_errors(root: Path) -> dict[tuple[Path, int], str]:
    errors: dict[tuple[Path, int], str] = {}
    with open_sandboxed_compiler(root) as graphs:
        for _, directory in iterate_directories(root):
            count = len((directory / RECORDS).read_text(errors="replace").splitlines())
            for start in range(0, count, BATCH):
                log = graphs.read_metaschedule_log(
                    str(directory.absolute()), start, min(BATCH, count - start)
                )
                errors |= {
                    (directory, problem.line): problem.error
                    for problem in log.problems
                    if problem.file == RECORDS and problem.error != NOT_TIMED
                }
    return errors


def remove_records(pruned: Sequence[Pruned]) -> None:
    """Rewrite the directories without these records and without workloads that lost all."""
    for directory in sorted({item.record.directory for item in pruned}):
        numbers = {item.record.line for item in pruned if item.record.directory == directory}
        provenance = read_provenance(directory) if (directory / PROVENANCE).is_file() else None
        programs = (directory / WORKLOADS).read_text().splitlines()
        lines = enumerate((directory / RECORDS).read_text().splitlines(), 1)
        records = [(number, read_json(text)) for number, text in lines if number not in numbers]
        indices = sorted({record[0] for _, record in records})
        places = {old: new for new, old in enumerate(indices)}
        if not records:
            for name in (RECORDS, WORKLOADS, PROVENANCE):
                (directory / name).unlink(missing_ok=True)
            continue
        _write_lines(directory / WORKLOADS, [programs[index] for index in indices])
        texts = [json.dumps([places[index], record], separators=(",", ":")) for _, (index, record) in records]
        _write_lines(directory / RECORDS, texts)
        if provenance is not None:
            write_provenance(directory, [provenance[number - 1] for number, _ in records])


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), newline="\n")
