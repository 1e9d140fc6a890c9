"""A simulated job: what the coordinator would keep in SQL, and the planner's view of it."""

from dataclasses import dataclass, field, replace

from benchmarks.sim.curves import Cut, ModelCurves, TaskCurve
from mallorn.core.values.decision_log import PlannedRound
from mallorn.services.planner.planner_values import JobPlan, JobView, Point, TaskView


@dataclass(slots=True)
class SimTask:
    """One task: its curve, how far it was played, and the view that follows from that."""

    curve: TaskCurve
    view: TaskView
    played: int = 0  # candidates of rounds so far
    seconds: float = 0.0
    best_us: float = 0.0

    def open(self, size: int) -> Cut:
        """Hand out the next candidates. The planner sees no more of them than their number."""
        cut = self.curve.cut(self.played, size)
        self.played += len(cut.candidates_us)
        self._see_open([*self.view.open_sizes, size])
        return cut

    def _see_open(self, sizes: list[int]) -> None:
        self.view = replace(self.view, open_sizes=tuple(sizes), workload_rounds=len(sizes))

    def close(self, cut: Cut, size: int) -> float:
        """Book a round of this size; by how much it lowered the weighted latency of the model."""
        trials = self.view.trials + len(cut.candidates_us)
        self.seconds += cut.seconds
        sizes = list(self.view.open_sizes)
        sizes.remove(size)
        self._see_open(sizes)
        before, best = self.best_us, cut.best_us
        if best is not None:
            self.best_us = min(self.best_us, best)
        self.view = replace(
            self.view,
            trials=trials,
            rounds=self.view.rounds + 1,
            points=(*self.view.points, Point(trials, best)),
            seconds_per_trial=self.seconds / trials if trials else None,
            failed_rounds=0 if best is not None else self.view.failed_rounds + bool(cut.candidates_us),
            exhausted=self.view.exhausted or cut.dry,
        )
        return self.view.weight * (before - self.best_us)


@dataclass(slots=True)
class SimJob:
    """One job that tunes a model's curves."""

    id: str
    policy: str
    seed: int
    max_open_rounds: int
    budget: int | None  # None: as many trials as pay
    round_size: int | None
    tasks: list[SimTask]
    latency_us: float  # the weighted total, now
    rounds_planned: int = 0
    trials: int = 0  # of closed rounds
    seconds: float = 0.0  # spent by all devices on closed rounds
    # By the number of the round: the place of its task, its size, and what it will bring.
    open: dict[int, tuple[int, int, Cut]] = field(default_factory=dict)

    def view(self) -> JobView:
        """What the coordinator would tell the planner."""
        return JobView(
            id=self.id,
            seed=self.seed,
            policy=self.policy,
            round_size=self.round_size,
            trials=self.budget,
            tasks=tuple(task.view for task in self.tasks),
            rounds_planned=self.rounds_planned,
            max_open_rounds=self.max_open_rounds,
            seconds_left=None,
            seconds_per_trial=self.seconds / self.trials if self.trials else None,
        )

    def apply(self, decision: JobPlan) -> list[tuple[int, Cut]]:
        """Open what was planned: the number of each round and what it will bring."""
        for task in self.tasks:
            if (words := decision.retired.get(task.view.id)) is not None:
                task.view = replace(task.view, retired=words)
        return [self._open(planned) for planned in decision.rounds]

    def _open(self, planned: PlannedRound) -> tuple[int, Cut]:
        at = next(at for at, task in enumerate(self.tasks) if task.view.id == planned.task_id)
        cut = self.tasks[at].open(planned.size)
        self.open[planned.index] = at, planned.size, cut
        self.rounds_planned += 1
        return planned.index, cut

    def close(self, number: int) -> None:
        """A round is over: its results count from now on."""
        at, size, cut = self.open.pop(number)
        self.latency_us -= self.tasks[at].close(cut, size)
        self.trials += len(cut.candidates_us)
        self.seconds += cut.seconds

    @property
    def unseen_trials(self) -> int:
        """Candidates of the curves that no round has reached."""
        return sum(len(task.curve.candidates_us[task.played :]) for task in self.tasks)

    @property
    def unseen_sec(self) -> float:
        """The seconds that those would take one device."""
        return sum(sum(task.curve.seconds[task.played :]) for task in self.tasks)


def new_job(
    model: ModelCurves,
    policy: str,
    seed: int,
    *,
    max_open_rounds: int,
    round_size: int | None = None,
    first_id: int = 0,
) -> SimJob:
    """A job on an empty dataset whose budget is the length of all curves."""
    tasks = [
        SimTask(
            curve,
            TaskView(
                id=first_id + index,
                index=index,
                name=curve.name,
                weight=curve.weight,
                flops=curve.flops,
                family=f"operator:{curve.op}",
                trials=0,
                rounds=0,
            ),
            best_us=curve.untuned_us,
        )
        for index, curve in enumerate(model.tasks)
    ]
    total_us = sum(curve.weight * curve.untuned_us for curve in model.tasks)
    return SimJob(model.name, policy, seed, max_open_rounds, model.trials, round_size, tasks, total_us)
