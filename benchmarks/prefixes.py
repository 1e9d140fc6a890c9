"""Directories of the best schedules after an arm's first trials, which stock TVM loads."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from mallorn.core.targets import Target
from mallorn.core.values.manifest import RECORDS, WORKLOADS
from mallorn.db.repositories.workloads import Sketches, Workloads, tir_of
from mallorn.db.session import Database
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.model_compiler import ModelCompiler, Tuned

Record = dict[str, Any]


def stock_prefix(work_dir: Path, trials: int, folder: Path) -> Path:
    """Copy stock's first `trials` records, which it writes in the order of measurement."""
    folder.mkdir(parents=True)
    shutil.copyfile(work_dir / WORKLOADS, folder / WORKLOADS)
    lines = (work_dir / RECORDS).read_text().splitlines()[:trials]
    (folder / RECORDS).write_text("".join(f"{line}\n" for line in lines))
    return folder


def our_prefixes(
    folder: Path,
    name: str,
    target: Target,
    records: Sequence[Record],
    shares: Sequence[float],
    untried: Path | None = None,
) -> dict[str, Path]:
    """Write an arm's schedules after each share of its trials; return them by `NAME@TRIALS`.

    Reads the dataset in `folder`. A task without a trial gets its schedule from `untried`, the result
    of a job without trials, as if the job ended at that point.
    """
    directories = {}
    for count in sorted({round(len(records) * share) for share in shares}):
        prefix = our_prefix(folder / "data", target, records, count, folder / f"first-{count}")
        if untried is not None:
            complete(prefix, untried)
        directories[f"{name}@{count}"] = prefix
    return directories


def our_prefix(data: Path, target: Target, records: Sequence[Record], trials: int, folder: Path) -> Path:
    """Write each workload's fastest of the first trials, unverified; oldest come first."""
    fastest: dict[str, Record] = {}
    for record in records[:trials]:
        rival = fastest.get(record["workload"])
        if record["latency_us"] and (rival is None or record["latency_us"] < rival["latency_us"]):
            fastest[record["workload"]] = record
    database = Database(f"sqlite:///{(data / 'mallorn.db').absolute()}")
    with CandidateCompiler() as compiler, ModelCompiler() as graphs:
        with database.session() as session:
            texts = [_texts(session, record) for record in fastest.values()]
        pairs = zip(fastest.values(), texts, strict=True)
        rows = [_row(compiler, target, record, *both) for record, both in pairs]
        graphs.write_database(str(folder), target.text, rows)
    database.dispose()
    return folder


def complete(directory: Path, other: Path) -> None:
    """Add another directory's records of workloads that this directory lacks."""
    workloads, records = _lines(directory / WORKLOADS), _lines(directory / RECORDS)
    keys = {workload[0] for workload in workloads}
    for workload, record in _joined(other):
        if workload[0] not in keys:
            records.append([len(workloads), record])
            workloads.append(workload)
    for name, lines in ((WORKLOADS, workloads), (RECORDS, records)):
        (directory / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _joined(directory: Path) -> list[tuple[Any, Any]]:
    """Return each workload with its record."""
    workloads = _lines(directory / WORKLOADS)
    return [(workloads[index], record) for index, record in _lines(directory / RECORDS)]


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _texts(session: Session, record: Record) -> tuple[str, str]:
    """Return the program and the sketch's trace of a record, from its dataset."""
    workload_id = Workloads(session).ids([record["workload"]])[record["workload"]]
    (sketch,) = Sketches(session).by_key([record["sketch"]]).values()
    return tir_of(Workloads(session).get(workload_id)), sketch.trace


def _row(compiler: CandidateCompiler, target: Target, record: Record, tir: str, trace: str) -> Tuned:
    decisions = record["decisions"]
    full_trace = compiler.full_trace(tir, target.text, trace, decisions)
    if full_trace is None:
        raise ValueError(f"{record} can no longer be rebuilt")
    return Tuned(tir, full_trace, [time_us / 1e6 for time_us in record["run_us"]])
