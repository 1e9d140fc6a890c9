"""Tunes a model once on a service of its own and reads back what every round brought."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import select

from benchmarks.arms import count_tasks
from benchmarks.fresh import fresh_stack
from benchmarks.hosts import describe_host
from benchmarks.sim.curve_file import Cell, RecordedRound
from mallorn.core.errors import MallornError
from mallorn.core.states import MeasurementKind, RoundState
from mallorn.core.targets import Target
from mallorn.core.values.dataset import Record
from mallorn.db.repositories.base import Page
from mallorn.db.repositories.measurements import Records
from mallorn.db.session import Database
from mallorn.db.tables import Round, Task, Workload
from mallorn_research.commands.wait_until_tuned import wait_for_device, wait_until_tuned

ROUND_SIZE: Final = 16
RECIPE: Final = "tuned"
PAGE: Final = 1000
Item = TypeVar("Item")


class NotRecorded(MallornError):
    """A job's database lacks what a recording is made of."""


def record(
    model: Path, target: Target, rounds: int, cell: Cell, folder: Path, options: dict[str, Any]
) -> tuple[list[RecordedRound], dict[str, Any]]:
    """Every task of a model tuned for `rounds` rounds on an empty dataset; and what it was measured on."""
    options = {"policy": "round-robin", "round_size": ROUND_SIZE, **options}
    trials = count_tasks(model, target, RECIPE) * rounds * ROUND_SIZE
    data = folder / "data"
    with fresh_stack(data) as stack:
        wait_for_device(stack)
        job = stack.api.submit(model, target.text, trials=trials, seed=cell.seed, **options)
        wait_until_tuned(job, f"less {data}/logs/worker.log")
        chosen = job.status.sent_options()
    database = Database(f"sqlite:///{data / 'mallorn.db'}")
    found = read_rounds(database, job.id, cell)
    database.dispose()
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    facts = {"rounds": rounds, "trials": trials, "options": chosen, "target": target.attrs}
    return found, describe_host() | facts | {"model_sha256": digest}


def read_rounds(database: Database, job_id: str, cell: Cell) -> list[RecordedRound]:
    """The closed rounds of a job as its database has them, in the order they were planned."""
    with database.session() as session:
        both = select(Task, Workload).join(Workload, Workload.id == Task.workload_id)
        tasks = {task.id: (task, of) for task, of in session.execute(both.where(Task.job_id == job_id))}
        rounds = session.scalars(select(Round).where(Round.job_id == job_id).order_by(Round.index)).all()
        records = Records(session)
        rows = _all_pages(lambda cursor: records.page(None, job_id=job_id, cursor=cursor, limit=PAGE))
        candidates = defaultdict[int, list[Record]](list)
        for row in rows:
            if row.round_id is not None and row.kind == MeasurementKind.TRIAL:
                candidates[row.round_id].append(row)
    done = [row for row in rounds if row.state == RoundState.DONE]
    made = defaultdict[int, list[RecordedRound]](list)
    return [_recorded(row, *tasks[row.task_id], candidates[row.id], made[row.task_id], cell) for row in done]


def _recorded(
    row: Round,
    task: Task,
    workload: Workload,
    records: list[Record],
    before: list[RecordedRound],
    cell: Cell,
) -> RecordedRound:
    """One round; it joins those that were made of its task before."""
    if row.started_at is None or row.finished_at is None:
        raise NotRecorded(f"round {row.index} is done without times", hint="record this model again")
    latencies = tuple(record.latency_us for record in sorted(records, key=lambda record: record.slot))
    found = RecordedRound(
        model=cell.model,
        seed=cell.seed,
        task=task.index,
        name=task.name,
        op=workload.op,
        structure=workload.structure,
        weight=task.weight,
        flops=workload.flops,
        index=row.index,
        round=len(before),
        trials=sum(len(earlier.candidates_us) for earlier in before) + len(latencies),
        size=row.size,
        best_us=min((latency for latency in latencies if latency is not None), default=None),
        failures=sum(latency is None for latency in latencies),
        seconds=row.finished_at - row.started_at,
        started_at=row.started_at,
        candidates_us=latencies,
    )
    before.append(found)
    return found


def _all_pages(fetch: Callable[[str | None], Page[Item]]) -> Iterator[Item]:
    cursor: str | None = None
    while True:
        page = fetch(cursor)
        yield from page.items
        if (cursor := page.cursor) is None:
            return
