"""Import MetaSchedule JSON databases: folders with a file of programs and one of records."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.storable_json import compact_json
from mallorn.core.values.manifest import RECORDS, WORKLOADS, MeasuredOn
from mallorn.db.repositories.tasks import STOCK
from mallorn.db.session import Database
from mallorn.workers.interfaces.model_compiler import (
    BadLine,
    ModelCompiler,
    RestoredLog,
    open_sandboxed_compiler,
)
from mallorn.workers.shared_schedules.import_records import Provenance, store_records
from mallorn.workers.shared_schedules.read_json_lines import (
    LoadedLog,
    Report,
    hash_program,
    read_lines,
    require_text,
    run_times_us,
)
from mallorn.workers.subprocesses.errors import ChildCrashed, ChildTimeout
from mallorn_research.tuner_logs.foreign_records import ForeignTrial

FORMAT: Final = "metaschedule"
# A log marks failures by the time 1e10, whether building or running failed.
FAILURE: Final = "1e10"


def read_database(
    directory: Path, report: Report, lines: Collection[int] | None = None
) -> Iterator[ForeignTrial]:
    """Return the records of a database, or only of `lines` (from 1); report and skip bad ones.

    Raises NotFound unless both files exist.
    """
    check_database_files(directory)
    programs = dict(read_lines(directory / WORKLOADS, hash_program, report))
    records = read_lines(directory / RECORDS, lambda line: _record(line, programs), report)
    return (trial for number, trial in records if lines is None or number + 1 in lines)


def check_database_files(directory: Path) -> None:
    """Raise NotFound unless a directory has both files of a MetaSchedule database."""
    for name in (WORKLOADS, RECORDS):
        if not (directory / name).is_file():
            message = f"no MetaSchedule database in {directory}: {name} is missing"
            raise NotFound(message, hint=f"ls {directory}")


def _record(line: Any, programs: dict[int, str]) -> ForeignTrial:
    index, (trace, run_secs, target, _) = line
    if index not in programs:
        raise ValueError(f"line {index + 1} of {WORKLOADS} is missing or incomplete")
    instructions, decisions = trace
    times = run_times_us(run_secs)
    return ForeignTrial(
        format=FORMAT,
        task=programs[index],
        target=require_text(target, "target") if isinstance(target, str) else compact_json(target),
        steps=compact_json([instructions, decisions]),
        outcome=Outcome.OK if times else Outcome.RUN_ERROR,
        failure=None if times else FAILURE,
        run_us=times,
    )


BATCH: Final = 64  # lines in one call and one transaction
# A log names its target, but no host, no evaluator and no time of measurement.
LOG: Final = Provenance(STOCK, FORMAT, 0.0, MeasuredOn(host_class="unknown", evaluator={"log": FORMAT}))


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
                    report(replace(bad, file=str(directory / bad.file)))
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
