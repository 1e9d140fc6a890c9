"""A yard: several targets, devices, workers and owners; rounds are closed without a worker."""

from collections import Counter
from typing import Any

import pytest
from sqlalchemy import update

from mallorn.core.outcomes import Outcome
from mallorn.core.states import RoundState
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Measurements, NewMeasurement
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workers import Workers
from mallorn.db.repositories.workloads import NewSketch, Sketches
from mallorn.db.tables import Device, Job, Round, Worker
from tests.fixtures.stored import open_rounds
from tests.fixtures.workshop import Workshop

SKETCH = NewSketch(Sketch("yard", "[trace]", ()), "synthetic/1", "0.27.0")


class Yard:
    """Shorthands around a workshop."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.write, self.read, self.plan = workshop.write, workshop.read, workshop.plan
        self.sketch_id = self.write(lambda session: Sketches(session).ensure_many([SKETCH])["yard"])

    def target(self, cores: int) -> int:
        text = f'{{"kind":"llvm","num-cores":{cores}}}'
        return int(self.write(lambda session: Targets(session).ensure(parse_target(text)).id))

    def devices(self, count: int, target_id: int | None = None) -> None:
        """So many devices of a target answer, and as many workers."""
        at = target_id or self.workshop.target_id
        for number in range(count):
            seen = SeenDevice(f"d{at}.{number}", at, "host", "made-up", 2, "0.27.0")
            self.write(lambda session, seen=seen: Devices(session).record_seen(seen))
        self.workers(count)

    def workers(self, count: int) -> None:
        """So many workers answer."""
        for number in range(count):
            name = f"w{number}"
            self.write(lambda session, name=name: Workers(session).record_seen(name, "host", {}))
        self._stay()

    def _stay(self) -> None:
        """However slow this machine is, who answers now still does at the end of the test."""
        for table in (Device, Worker):
            later = update(table).where(table.last_seen > 0).values(last_seen=table.last_seen + 3600)
            self.write(lambda session, later=later: session.execute(later))

    def silence(self) -> None:
        """No device answers."""
        self.write(lambda session: session.execute(update(Device).values(last_seen=0.0)))

    def job(self, *workloads: str, trials: int = 1000, target_id: int | None = None, **columns: Any) -> str:
        """A tuning job; its workloads are its own unless they are named."""
        names = workloads or [f"own{self._count()}.{at}" for at in range(4)]
        job_id = self.workshop.job(names, trials, policy="round-robin")  # which never ends a job early
        self._stay()
        columns |= {"target_id": target_id} if target_id else {}
        if columns:
            self.write(lambda session: session.execute(update(Job).where(Job.id == job_id).values(columns)))
        return job_id

    def _count(self) -> int:
        return len(self.read(lambda session: Jobs(session).list(None, limit=200).items))

    def opened(self, job_id: str) -> list[int]:
        """Plan, and say which rounds are new."""
        before = {row.id for row in self.open_rounds()}
        self.plan(job_id)
        return [row.id for row in self.open_rounds() if row.id not in before]

    def close(self, round_id: int, latency_us: float = 10.0) -> str:
        """Every candidate of the round ran as fast; the job it belongs to."""
        return str(self.write(lambda session: self._close(session, round_id, latency_us)))

    def _close(self, session: Any, round_id: int, latency_us: float) -> str:
        hold = Rounds(session).claim(round_id, "w", 60)
        row = Rounds(session).get(round_id)
        context_id = Jobs(session).get(row.job_id, None).context_id
        batch = [
            NewMeasurement(
                slot,
                Trial(Candidate("yard", (round_id, slot)), Outcome.OK, origin="random", run_us=(latency_us,)),
                self.sketch_id,
                context_id,
            )
            for slot in range(row.size)
        ]
        Measurements(session).add_trials(hold, batch)
        Rounds(session).close(hold, RoundState.DONE)
        return row.job_id

    def owner_of(self, round_id: int) -> str:
        """The job of a round."""
        return str(self.read(lambda session: Rounds(session).get(round_id).job_id))

    def open_rounds(self, target_id: int | None = None) -> list[Round]:
        return list(self.read(lambda session: open_rounds(session, target_id=target_id)))

    def turns(self, first: str, count: int) -> Counter[str]:
        """Close the oldest open round and plan its job, so many times; the candidates each job was given."""
        given = Counter[str]()
        news = self.opened(first)
        for _ in range(count):
            for round_id in news:
                row = self.workshop.round(round_id)
                given[row.job_id] += row.size
            oldest = min(row.id for row in self.open_rounds())
            news = self.opened(self.close(oldest))
        return given


@pytest.fixture
def yard(workshop: Workshop) -> Yard:
    """A target with one device."""
    return Yard(workshop)
