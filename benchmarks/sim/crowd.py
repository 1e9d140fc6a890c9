"""Jobs of several owners that share one pool of devices, come and go."""

from dataclasses import dataclass
from time import perf_counter
from typing import Final

from benchmarks.sim.devices import Devices
from benchmarks.sim.state import SimJob, new_job
from benchmarks.sim.synthetic import smooth
from mallorn.services.planner.fair_share import JobShare, charge_job, distribute_rounds
from mallorn.services.planner.plan_rounds import plan_rounds

TRIALS: Final = 80  # of a task's curve; a job that has spent its budget makes room for a new one
OWNERS: Final = 20
PRIORITIES: Final = (0, 0, 0, 1)


@dataclass(frozen=True)
class Load:
    """How much there is to decide."""

    jobs: int = 200
    tasks: int = 50  # of each job
    devices: int = 500
    decisions: int = 100_000


class Crowd:
    """As many jobs as the load says, at any time; a device that is free goes to the job whose turn it is."""

    def __init__(self, load: Load, policy: str) -> None:
        self._load = load
        self._policy = policy
        self._born = 0
        self.jobs: dict[str, SimJob] = {}
        self.shares: dict[str, JobShare] = {}
        self.devices = Devices[tuple[str, int]](load.devices)
        self.decision_ms: list[float] = []  # whose turn it is, and what that job does
        self.turn_ms: list[float] = []  # the first part alone
        for _ in range(load.jobs):
            self._admit()
        self._fill()

    @property
    def finished(self) -> int:
        return self._born - self._load.jobs

    @property
    def open_rounds(self) -> int:
        return sum(len(job.open) for job in self.jobs.values())

    def step(self) -> None:
        """One round closes, and what became free is given away."""
        job_id, number = self.devices.finish_next()
        self.jobs[job_id].close(number)
        self._fill()

    def _fill(self) -> None:
        """Open a round for every device, and one more, as control does."""
        idle: set[str] = set()  # jobs that had nothing to open just now
        while self.open_rounds <= self._load.devices and len(idle) < len(self.jobs):
            self._decide(idle)

    def _decide(self, idle: set[str]) -> None:
        began = perf_counter()
        able = self.shares.keys() - idle
        job = self.jobs[next(iter(distribute_rounds(self.shares.values(), able, 1)))]
        self.turn_ms.append((perf_counter() - began) * 1e3)
        job.max_open_rounds = len(job.open) + 1
        decision = plan_rounds(job.view())
        self.decision_ms.append((perf_counter() - began) * 1e3)
        for number, cut in job.apply(decision):
            self.devices.submit((job.id, number), cut.seconds)
            size = len(cut.candidates_us)
            self.shares[job.id] = charge_job([*self.shares.values()], job.id, size)
        if decision.finished:
            self._dismiss(job.id)
        elif not decision.rounds:
            idle.add(job.id)

    def _dismiss(self, job_id: str) -> None:
        del self.jobs[job_id], self.shares[job_id]
        self._admit()

    def _admit(self) -> None:
        """The first ones have less to do, each another share of it, so that they do not all end at once."""
        seed, self._born = self._born, self._born + 1
        model = smooth(seed, self._load.tasks, TRIALS)
        job = new_job(model, self._policy, seed, max_open_rounds=1, first_id=seed * self._load.tasks)
        job.id = f"job{seed}"
        if seed < self._load.jobs:
            job.budget = int(model.trials * (0.5 + 0.5 * (seed + 1) / self._load.jobs))
        self.jobs[job.id] = job
        priority = PRIORITIES[seed // OWNERS % len(PRIORITIES)]
        self.shares[job.id] = JobShare(job.id, f"owner{seed % OWNERS}", priority)
