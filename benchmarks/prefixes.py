"""The schedules an arm would have ended with after its first trials, as directories that stock TVM loads."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from db.repositories.sketches import Sketches
from db.repositories.workloads import Workloads, tir_of
from db.session import Database
from mallorn.core.targets import Target
from mallorn.core.values.manifest import RECORDS, WORKLOADS
from workers.interfaces.candidate_compiler import CandidateCompiler
from workers.interfaces.model_compiler import ModelCompiler, Tuned

Record = dict[str, Any]


def stock_prefix(work_dir: Path, trials: int, folder: Path) -> Path:
    """Stock commits in the order it measures, so its first lines are its first trials."""
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
    """An arm's schedules after each share of its trials, by `NAME@TRIALS`; its dataset is in the folder.

    A task without a trial gets what is in `untried`, the schedules of a job without trials, as it would from
    a job that ends there.
    """
    found = {}
    for count in sorted({round(len(records) * share) for share in shares}):
        prefix = our_prefix(folder / "data", target, records, count, folder / f"first-{count}")
        if untried is not None:
            complete(prefix, untried)
        found[f"{name}@{count}"] = prefix
    return found


def our_prefix(data: Path, target: Target, records: Sequence[Record], trials: int, folder: Path) -> Path:
    """The fastest of each workload among the first trials, oldest first in `records`; nothing is verified."""
    fastest: dict[str, Record] = {}
    for record in records[:trials]:
        rival = fastest.get(record["workload"])
        if record["latency_us"] and (rival is None or record["latency_us"] < rival["latency_us"]):
            fastest[record["workload"]] = record
    database = Database(f"sqlite:///{(data / 'mallorn.db').absolute()}")
    with CandidateCompiler() as compiler, ModelCompiler() as graphs:
        with database.session() as session:
            texts = [_texts(session, record) for record in fastest.values()]
        found = zip(fastest.values(), texts, strict=True)
        rows = [_row(compiler, target, record, *both) for record, both in found]
        graphs.write_database(str(folder), target.text, rows)
    database.dispose()
    return folder


def complete(directory: Path, other: Path) -> None:
    """Add another directory's records of those workloads that this one lacks."""
    workloads, records = _lines(directory / WORKLOADS), _lines(directory / RECORDS)
    known = {workload[0] for workload in workloads}
    for workload, record in _joined(other):
        if workload[0] not in known:
            records.append([len(workloads), record])
            workloads.append(workload)
    for name, lines in ((WORKLOADS, workloads), (RECORDS, records)):
        (directory / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _joined(directory: Path) -> list[tuple[Any, Any]]:
    """Each record with its workload."""
    workloads = _lines(directory / WORKLOADS)
    return [(workloads[index], record) for index, record in _lines(directory / RECORDS)]


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _texts(session: Session, record: Record) -> tuple[str, str]:
    """The program and the sketch's trace of a record, from the dataset that holds it."""
    workload_id = Workloads(session).ids([record["workload"]])[record["workload"]]
    (sketch,) = Sketches(session).by_key([record["sketch"]]).values()
    return tir_of(Workloads(session).get(workload_id)), sketch.trace


def _row(compiler: CandidateCompiler, target: Target, record: Record, tir: str, trace: str) -> Tuned:
    decisions = record["decisions"]
    full = compiler.full_trace(tir, target.text, trace, decisions)
    if full is None:
        raise ValueError(f"{record} can no longer be rebuilt")
    return Tuned(tir, full, [time_us / 1e6 for time_us in record["run_us"]])
