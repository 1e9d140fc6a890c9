"""Plain values that the planner takes and returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from mallorn.core.values.decision_log import PlannedRound
from mallorn.core.values.expected_gain import Outlook

ROUND_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of a task's next round; latencies are those of its best candidate."""

    expected_us: float  # the median
    low_us: float  # low_us to high_us holds the round's best with 80 % probability
    high_us: float
    gain_us: float  # expected drop of the task's best latency, never negative
    gain_sd_us: float  # how uncertain that drop is
    gain_probability: float  # the probability of a drop larger than measuring noise


@dataclass(frozen=True, slots=True)
class Point:
    """Result of a closed round of a workload on a target; the round may be another job's."""

    trials: int  # measured on this workload before and in this round
    best_us: float | None  # of this round's own candidates; None when none was valid


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task with what the planner knows about its rounds and results."""

    id: int
    index: int
    name: str
    weight: int
    flops: float
    family: str
    trials: int  # measured trials of this job
    rounds: int  # closed rounds of this job
    open_sizes: tuple[int, ...] = ()  # unmeasured candidates of each of its open rounds
    workload_rounds: int = 0  # open ones of its workload, also of jobs that this one learns from
    points: tuple[Point, ...] = ()  # in closing order, rounds of other jobs included
    known_us: float | None = None  # the dataset's best from before those points
    seconds_per_trial: float | None = None  # mean of its own rounds
    failed_rounds: int = 0  # closed rounds since the last valid result
    lost_rounds: int = 0  # newest consecutive rounds given up because workers died
    left_out: bool = False  # excluded by the job's `only`
    exhausted: bool = False  # its searcher found nothing left to propose
    retired: str = ""  # why it got no more rounds at the last decision
    limit_us: float | None = None  # the machine's lower bound, if known

    @property
    def in_flight(self) -> int:
        """Unmeasured candidates of its open rounds."""
        return sum(self.open_sizes)

    @property
    def curve_us(self) -> tuple[float, ...]:
        """Best latency after each round with a result; `known_us`, if any, comes first."""
        times = [self.known_us, *(point.best_us for point in self.points)]
        return tuple(accumulate((best for best in times if best is not None), min))

    @property
    def best_us(self) -> float | None:
        times = (self.known_us, *(point.best_us for point in self.points))
        return min((best for best in times if best is not None), default=None)


@dataclass(frozen=True, slots=True)
class JobView:
    """A job and its tasks, with all that the planner uses to decide."""

    id: str
    seed: int
    policy: str
    round_size: int | None  # None: the planner decides
    trials: int | None  # the budget; None: limited by time, or by expected gain
    tasks: tuple[TaskView, ...]
    rounds_planned: int  # index of the next round
    max_open_rounds: int
    seconds_left: float | None  # until tuning must stop so that the finish meets the deadline
    seconds_per_trial: float | None  # of its rounds so far
    task_trials: int | None = None  # the budget of each task
    usual_size: int = ROUND_SIZE  # of rounds, if the planner decides

    @property
    def has_auto_budget(self) -> bool:
        """Whether only the expected gain of further trials limits the job."""
        return self.trials is None and self.seconds_left is None

    @property
    def spent_trials(self) -> int:
        return sum(task.trials + task.in_flight for task in self.tasks)

    @property
    def open_rounds(self) -> int:
        return sum(len(task.open_sizes) for task in self.tasks)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The planner's decision: rounds to open, or why tuning is over."""

    rounds: tuple[PlannedRound, ...] = ()
    finished: str = ""  # the reason; empty while tuning goes on
    outlook: Outlook | None = None  # None until every task that matters has a time
    # Changes by task: why it gets no more rounds, or "" to bring it back.
    retired: Mapping[int, str] = field(default_factory=dict)
