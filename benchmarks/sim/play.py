"""Plays one job to its end: the real planner decides, the curves answer, simulated devices take the time."""

from dataclasses import dataclass
from time import perf_counter

from benchmarks.sim.devices import Devices
from benchmarks.sim.state import SimJob
from mallorn.core.errors import MallornError
from mallorn.services.planner.plan_rounds import plan_rounds


class Stalled(MallornError):
    """The planner opened no round, gave no end, and nothing is running."""


@dataclass(frozen=True, slots=True)
class Step:
    """How the job stood when a round closed."""

    trials: int  # committed
    seconds: float  # simulated
    latency_us: float  # the weighted total


@dataclass(frozen=True)
class Run:
    """One job, played."""

    start_us: float
    final_us: float  # what playing every curve to its end would give
    total_trials: int
    steps: tuple[Step, ...]
    unseen_trials: int
    unseen_sec: float  # of device time
    devices: int
    decisions: int
    planning_sec: float  # real, not simulated
    finished: str

    def trials_to(self, factor: float) -> int:
        """Trials until the weighted latency was within `factor` of the final one.

        A run that ended before counts as if it had tried all that it left unseen: more is never needed.
        """
        step = self._first(factor)
        return step.trials if step else self.steps[-1].trials + self.unseen_trials

    def seconds_to(self, factor: float) -> float:
        """Simulated seconds until then; what a run left unseen is spread over all devices."""
        step = self._first(factor)
        return step.seconds if step else self.steps[-1].seconds + self.unseen_sec / self.devices

    def reached(self, factor: float) -> bool:
        return self._first(factor) is not None

    def regret(self, share: float) -> float:
        """How far above the final latency the job was after a share of the curves' trials, relative."""
        return self._at(int(share * self.total_trials)) / self.final_us - 1.0

    def won(self, after: int, trials: int) -> float:
        """The share of the latency after so many trials that the next ones took off it."""
        before_us = self._at(after)
        return 1.0 - self._at(after + trials) / before_us

    def _at(self, trials: int) -> float:
        reached = (step.latency_us for step in reversed(self.steps) if step.trials <= trials)
        return next(reached, self.start_us)

    def _first(self, factor: float) -> Step | None:
        return next((step for step in self.steps if step.latency_us <= factor * self.final_us), None)


def play(job: SimJob, devices: int, final_us: float) -> Run:
    """Run a job on `devices` devices until the planner calls it finished."""
    fleet = Devices[int](devices)
    start_us, steps, decisions, planning_sec = job.latency_us, list[Step](), 0, 0.0
    while True:
        view, began = job.view(), perf_counter()
        decision = plan_rounds(view)
        planning_sec += perf_counter() - began
        decisions += len(decision.rounds)
        for number, cut in job.apply(decision):
            fleet.submit(number, cut.seconds)
        if decision.finished:
            break
        if not fleet.busy:
            raise Stalled(f"job {job.id} under {job.policy} stands still after {job.trials} trials")
        job.close(fleet.finish_next())
        steps.append(Step(job.trials, fleet.now_sec, job.latency_us))
    return Run(
        start_us=start_us,
        final_us=final_us,
        total_trials=sum(len(task.curve.candidates_us) for task in job.tasks),
        steps=tuple(steps),
        unseen_trials=job.unseen_trials,
        unseen_sec=job.unseen_sec,
        devices=devices,
        decisions=decisions,
        planning_sec=planning_sec,
        finished=decision.finished,
    )
