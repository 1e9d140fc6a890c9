"""The planner's input and output, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from mallorn.core.values.decision_log import PlannedRound
from mallorn.core.values.expected_gain import Outlook


@dataclass(frozen=True, slots=True)
class Point:
    """One closed round of a workload on a target, whichever job paid for it."""

    trials: int  # measured on this workload before and in this round
    best_us: float | None  # of this round's own candidates; None when none was valid


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as the planner sees it."""

    id: int
    index: int
    name: str
    weight: int
    flops: float
    family: str
    trials: int  # committed, this job
    in_flight: int  # candidates of its open rounds
    blocked: bool  # its workload has an open round, of this job or of another
    rounds: int  # closed rounds, this job
    points: tuple[Point, ...] = ()  # in the order the rounds closed; what other jobs measured counts
    known_us: float | None = None  # the dataset's best from before those points
    seconds_per_trial: float | None = None  # of its own rounds
    failed_rounds: int = 0  # closed rounds since the last valid result
    lost_rounds: int = 0  # the newest rounds in a row that were given up because their workers died
    left_out: bool = False  # excluded by the job's `only`
    exhausted: bool = False  # its searcher found nothing left to propose
    retired: str = ""  # why it got no more rounds at the last decision
    limit_us: float | None = None  # what its machine takes for it at least, where that is known

    @property
    def curve_us(self) -> tuple[float, ...]:
        """The best latency after each round; what was known before counts as a round."""
        known = [self.known_us, *(point.best_us for point in self.points)]
        return tuple(accumulate((best for best in known if best is not None), min))

    @property
    def best_us(self) -> float | None:
        known = (self.known_us, *(point.best_us for point in self.points))
        return min((best for best in known if best is not None), default=None)


@dataclass(frozen=True, slots=True)
class JobView:
    """One job's state at the moment of a decision."""

    id: str
    seed: int
    policy: str
    round_size: int | None  # None: the planner's choice
    trials: int | None  # the budget; None: as many as its time allows, or as pay
    tasks: tuple[TaskView, ...]
    rounds_planned: int  # all rounds ever planned, which numbers the next one
    slots: int  # how many rounds may be open at once
    seconds_left: float | None  # until tuning must stop so that the finish meets the deadline
    seconds_per_trial: float | None  # so far
    task_trials: int | None = None  # the budget of every task alone

    @property
    def auto(self) -> bool:
        """Whether nothing but the worth of further trials limits it."""
        return self.trials is None and self.seconds_left is None

    @property
    def spent(self) -> int:
        return sum(task.trials + task.in_flight for task in self.tasks)

    @property
    def open_rounds(self) -> int:
        return sum(task.in_flight > 0 for task in self.tasks)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The planner's answer: rounds to open, or why tuning is over."""

    rounds: tuple[PlannedRound, ...] = ()
    finished: str = ""  # the reason; empty while tuning goes on
    outlook: Outlook | None = None  # once every task that matters has a time
    # Changes by task: why it gets no more rounds, or "" to bring it back.
    retired: Mapping[int, str] = field(default_factory=dict)
