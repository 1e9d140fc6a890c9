"""What a busy service has in its database: jobs of many tasks, and devices that tell of their rounds."""

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.errors import Unavailable
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, RoundState
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.decision_log import PlannedRound, RoundStats
from mallorn.core.values.event import MeasuredEvent, RoundClosedEvent
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import LeaseToken
from mallorn.db.repositories.measurements import Measurements, NewMeasurement
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import NewTask, Tasks
from mallorn.db.repositories.workloads import NewSketch, NewWorkload, Sketches, Workloads
from mallorn.db.session import Database

ROUND_SIZE: Final = 8
BATCH: Final = 4
LEASE_SEC: Final = 60.0
SKETCH: Final = NewSketch(Sketch("load", "[trace]", ()), "load/1", "0")


def split(database: Database, job_ids: list[str], tasks: int) -> None:
    """What an import leaves of each job: so many tasks, and the state `tuning`."""
    for job_id in job_ids:
        names = [f"load-{job_id}-{number}" for number in range(tasks)]
        with database.transaction() as session:
            ids = Workloads(session).ensure_many([_workload(name) for name in names])
            parts = [NewTask(at, name, 1, ids[name], "matmul") for at, name in enumerate(names)]
            Tasks(session).add_many(job_id, parts)
            Jobs(session).move_to_state(job_id, [JobState.QUEUED], JobState.TUNING)


@dataclass(frozen=True, slots=True)
class Bench:
    """A made-up device: a round every so often, of a job that is drawn."""

    database: Database
    job_ids: list[str]
    random: random.Random
    period_sec: float

    def work(self, until_sec: float) -> int:
        """Rounds until then; how many could not be told of."""
        failed = 0
        time.sleep(self.random.uniform(0, self.period_sec))
        while time.monotonic() < until_sec:
            began_sec = time.monotonic()
            try:
                self._round(self.random.choice(self.job_ids))
            except Unavailable:
                failed += 1
            time.sleep(max(0.0, self.period_sec - (time.monotonic() - began_sec)))
        return failed

    def _round(self, job_id: str) -> None:
        with self.database.transaction() as session:
            task = self.random.choice(Tasks(session).list(job_id))
            Jobs(session).lock_jobs([job_id])
            to_plan = FairShares(session).job_to_plan(job_id)
            job, planned = to_plan.job, PlannedRound(task.id, to_plan.next_index, ROUND_SIZE, seed=1)
            row = Rounds(session).add(job, task.workload_id, planned, "random")
            if row is None:
                return
            hold = Rounds(session).claim(row.id, "load", LEASE_SEC)
            context = Contexts(session).ensure(job.target_id, "load", "0", 2, {}).id
            sketch = Sketches(session).ensure_many([SKETCH])["load"]
        assert hold is not None
        named = {"round": row.index, "task": task.index, "name": task.name}
        for first in range(0, ROUND_SIZE, BATCH):
            time.sleep(self.period_sec / 4)
            with self.database.transaction() as session:
                rows = [_trial(slot, sketch, context) for slot in range(first, first + BATCH)]
                Measurements(session).add_trials(hold, rows)
                # The best that it tells is the moment of telling: whoever reads it knows how long it took.
                told = MeasuredEvent(**named, trials=BATCH, failures=0, best_us=time.time())
                Events(session).append(job_id, told)
        with self.database.transaction() as session:
            self._close(session, job_id, hold, named)

    def _close(self, session: Session, job_id: str, hold: LeaseToken, named: dict[str, object]) -> None:
        Rounds(session).close(hold, RoundState.DONE, RoundStats())
        Events(session).append(job_id, RoundClosedEvent.model_validate(named))


def _workload(name: str) -> NewWorkload:
    return NewWorkload(name, name, "matmul", "s0", 1e6, "{}", {"args": []}, {"extents": [64]}, "0")


def _trial(slot: int, sketch_id: int, context_id: int) -> NewMeasurement:
    trial = Trial(Candidate("load", (slot,)), outcome=Outcome.OK, origin="random", run_us=(10.0 + slot,))
    return NewMeasurement(slot, trial, sketch_id, context_id, None)


def main() -> None:
    """DATABASE_URL DEVICES PERIOD_SEC SECONDS; ids of jobs on stdin. Prints what failed."""
    url, devices, period_sec, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    job_ids, database = sys.stdin.read().split(), Database(url)
    until_sec = time.monotonic() + seconds
    benches = [Bench(database, job_ids, random.Random(seed), period_sec) for seed in range(devices)]
    with ThreadPoolExecutor(devices) as pool:
        print(sum(pool.map(lambda bench: bench.work(until_sec), benches)))


if __name__ == "__main__":
    main()
