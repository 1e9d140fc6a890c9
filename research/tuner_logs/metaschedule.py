"""Read MetaSchedule JSON databases: folders with a file of programs and one of records."""

import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.storable_json import compact_json
from mallorn.core.values.manifest import RECORDS, WORKLOADS
from mallorn.db.repositories.tuner_log_records import ForeignTrial
from mallorn.research.tuner_logs.read_json_lines import Report, read_lines, require_text, run_times_us

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


def hash_program(line: Any) -> str:
    """Hash the program's bytes, as the structural hash in logs differs between platforms."""
    _, program = line
    return hashlib.sha256(require_text(program, "program").encode()).hexdigest()


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
