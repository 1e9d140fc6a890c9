"""What one plan, one round and the work after it ask of Postgres, by the length of a job's history.

python -m benchmarks.scale.statements [--history 16,1600]

The product's own tasks run in one process, on made-up candidates and without a broker. Nothing is timed:
the same code gives the same counts.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from benchmarks.postgres import Postgres
from mallorn.core import queues
from mallorn.core.check_plugin_classes import ANY
from mallorn.core.job_options import KeptOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.registry import REGISTRY
from mallorn.core.settings import settings
from mallorn.core.states import RoundState
from mallorn.core.targets import parse_target
from mallorn.core.values.decision_log import PlannedRound, RoundStats
from mallorn.core.values.trial import Trial
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Measurements, NewMeasurement
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.session import Database
from mallorn.services.control import celery_tasks as control
from mallorn.services.control import plan_target as planning
from mallorn.workers import celery_tasks as worker
from mallorn.workers.measure.tracked_devices import TrackedDevice
from mallorn.workers.process import heartbeat as heartbeats
from mallorn.workers.process import lookout
from mallorn.workers.process.heartbeat import Heartbeat
from mallorn.workers.process.lookout import Lookout
from mallorn.workers.round.store_referenced_rows import store_sites, store_sketches
from tests.fixtures.workshop import ENDPOINT, TARGET, Workshop

ROUND_SIZE: Final = 16
HISTORIES: Final = (16, 1600)  # measurements of the job before what is counted
TASKS: Final = ("w0", "w1", "w2", "w3")
SIZE: Final = 512  # of the matrix products: they have far more candidates than any history
OPTIONS: Final = {"round_size": ROUND_SIZE, "cost_model": "xgboost", "search": "ga", "policy": "round-robin"}
DEVICES: Final = 200
LONG_SEC: Final = 3600.0
IDLE_TARGET: Final = '{"kind":"llvm","num-cores":9}'


@dataclass(frozen=True, slots=True)
class Counts:
    """What a part of the work asks for: `rows` are those that the database returned to it."""

    statements: int
    transactions: int
    rows: int
    messages: int


def count_by_part(workshop: Workshop, history: int) -> dict[str, Counts]:
    """Measure a job until it has this history; return what its next round asks for, by part.

    `train` fits the cost model to the history, `round` measures ROUND_SIZE candidates that
    the model ranked, `plan` opens another round in its place, `sweep` looks for jobs to
    plan, `look` for work whose message was lost, `heartbeat` reports a worker, and
    `devices` reports DEVICES devices.
    """
    workshop.use_space(SIZE, SIZE, SIZE)
    with _product_tasks(workshop) as messages:
        job_id = workshop.job(TASKS, trials=10 * max(HISTORIES) + history, **OPTIONS)
        control.plan_target_of_job(job_id)
        workshop.roll_call.ability = workshop.ability()
        worker.do_work(*_take(messages, queues.WORK))
        train = _take(messages, queues.TRAIN_COST_MODEL)
        workshop.write(lambda session: _add_history(session, workshop, job_id, history - ROUND_SIZE))
        del messages[:]
        workshop.see_device()
        control.plan_target_of_job(job_id)  # opens a round for the device, and one more
        woken = _take(messages, queues.WORK)
        counts = {"train": _counted(workshop, messages, lambda: worker.train_cost_model(*train))}
        counts["round"] = _counted(workshop, messages, lambda: worker.do_work(*woken))
        counts["plan"] = _counted(workshop, messages, lambda: control.plan_target_of_job(job_id))
        counts["sweep"] = _counted(workshop, messages, control.sweep_lost_messages)
        counts["look"] = _counted(
            workshop, messages, Lookout(workshop, lambda *message: messages.append(message)).look
        )
        heartbeat = Heartbeat(workshop.database, _Tracker(), workshop.name)  # type: ignore[arg-type]
        heartbeat.report_once()
        heartbeat.begin_task("a round")
        counts["heartbeat"] = _counted(workshop, messages, heartbeat.report_worker)
        counts["devices"] = _counted(workshop, messages, heartbeat.report_devices)
    return counts


class _Tracker:
    """Lists the devices as mallorn.workers.measure.tracked_devices.Fleet does."""

    def devices(self) -> list[TrackedDevice]:
        text = parse_target(IDLE_TARGET).text
        names = [f"device{number:03}" for number in range(DEVICES)]
        return [TrackedDevice("key", text, False, replace(ENDPOINT, name=name)) for name in names]


@contextmanager
def _product_tasks(workshop: Workshop) -> Iterator[list[queues.Message]]:
    """Let the Celery tasks of control and worker run here, and collect the messages they send."""
    messages: list[queues.Message] = []

    def send(name: str, *args: Any) -> None:
        messages.append((name, *args))

    measurer = {"made-up": "tests.fixtures.workshop:MadeUpMeasurer"}
    with (
        patch.dict(REGISTRY["measurer"], measurer),
        patch.object(settings(), "plugins", [ANY]),
        patch.object(control, "database", lambda: workshop.database),
        patch.object(control, "send", send),
        patch.object(worker, "runtime", lambda: workshop),
        patch.object(worker, "send_task", send),
        # Whoever reported just now is fresh, and no work waits for long, however slow this host is.
        patch.object(lookout, "WAITED_SEC", LONG_SEC),
        patch.object(heartbeats, "ENOUGH_SEC", LONG_SEC),
        patch.object(planning, "FRESH_SEC", LONG_SEC),
    ):
        yield messages


def _take(messages: list[queues.Message], name: str) -> list[Any]:
    """Remove the newest message to a task, and return its arguments."""
    found = [message for message in messages if message[0] == name][-1]
    messages.remove(found)
    _, *arguments = found
    return arguments


def _add_history(session: Session, workshop: Workshop, job_id: str, count: int) -> None:
    """Store closed rounds of a job, each of another task, with `count` measurements in all."""
    job, space = Jobs(session).get(job_id, None), workshop.space
    sketch_ids = store_sketches(session, workshop.maker.on_design_space("", ""))
    options = KeptOptions.model_validate(job.options)
    (site,) = store_sites(session, job.target_id, TARGET, options, [ENDPOINT])
    candidates = [*dict.fromkeys(space.sample(np.random.default_rng(0), 2 * count))][:count]
    tasks = Tasks(session).list(job_id)
    Rounds(session).cancel_open(job_id)
    for first in range(0, count, ROUND_SIZE):
        task = tasks[first // ROUND_SIZE % len(tasks)]
        index = FairShares(session).job_to_plan(job_id).next_index
        planned = PlannedRound(task.id, index, ROUND_SIZE, seed=0)
        row = Rounds(session).add(job, task.workload_id, planned, "ga")
        assert row is not None
        hold = Rounds(session).claim(row.id, workshop.name, 60.0)
        assert hold is not None
        measured = [
            NewMeasurement(
                slot,
                Trial(candidate, Outcome.OK, origin="ga", run_us=(100.0 + slot,)),
                sketch_ids[candidate.sketch],
                site.context_id,
                site.device_id,
            )
            for slot, candidate in enumerate(candidates[first : first + ROUND_SIZE])
        ]
        Measurements(session).add_trials(hold, measured)
        Rounds(session).close(hold, RoundState.DONE, RoundStats())


def _counted(workshop: Workshop, messages: list[queues.Message], act: Callable[[], object]) -> Counts:
    statements, transactions, rows, sent = 0, 0, 0, len(messages)

    def executed(_connection: Any, cursor: Any, *_rest: Any) -> None:
        nonlocal statements, rows
        statements += 1
        if cursor.description is not None:
            rows += max(0, cursor.rowcount)

    def begun(_connection: Any) -> None:
        nonlocal transactions
        transactions += 1

    engine: Engine = workshop.database.engine
    event.listen(engine, "after_cursor_execute", executed)
    event.listen(engine, "begin", begun)
    try:
        act()
    finally:
        event.remove(engine, "after_cursor_execute", executed)
        event.remove(engine, "begin", begun)
    return Counts(statements, transactions, rows, len(messages) - sent)


def main() -> None:
    """Count on a new Postgres for each history, and print a line a part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--history", default=",".join(map(str, HISTORIES)), help="measurements before")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for history in map(int, options.history.split(",")):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="scale-")))
            url = stack.enter_context(Postgres()).url
            upgrade(url)
            workshop = Workshop(stack.enter_context(Database(url)), folder)
            counts = count_by_part(workshop, history)
        found[str(history)] = {part: asdict(each) for part, each in counts.items()}
        for part, each in counts.items():
            print(f"history {history:6}  {part:10} {each}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
