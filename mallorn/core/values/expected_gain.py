"""Gain expected from more trials of a job, and how far tasks are from hardware limits."""

from math import ceil
from typing import Annotated, Final

from pydantic import Field

from mallorn.core.format_text import percent
from mallorn.core.values.base import Value

# Number of future trials whose gain the planner predicts.
LOOK_AHEAD: Final = 100
# Share of the latency that these trials must be expected to save to be worth their time:
# about one percent a minute if a trial takes a quarter of a second (docs/planner.md).
WORTH: Final = 0.005
SMALLEST: Final = 0.001  # a smaller gain cannot be distinguished from none
_NAME_CHARS: Final = 60  # of a task's name in a sentence: TVM joins the names of all operators
LITTLE: Final = 0.02  # share of the latency by which two jobs without trials may differ


class Outlook(Value):
    """What the planner expected at its last decision. Latencies are weighted sums over tasks."""

    current_us: Annotated[float, Field(gt=0, description="Best measured latencies.")]
    limit_us: Annotated[
        float | None,
        Field(
            gt=0,
            description="Roofline bound: the machine only computes, or only moves inputs and outputs, "
            "whichever takes longer. null: its rates are unknown.",
        ),
    ] = None
    expected_us: Annotated[float, Field(description="Expected at the end of tuning.")]
    gain: Annotated[
        float, Field(description=f"Share of `now_us` that the next {LOOK_AHEAD} trials are expected to save.")
    ]
    trials: Annotated[int, Field(description="Expected number until tuning ends.")] = 0

    @property
    def limit_share(self) -> float | None:
        """Share of the hardware limit that the tasks reach; None if the limit is unknown."""
        return None if self.limit_us is None else min(1.0, self.limit_us / self.current_us)

    @property
    def is_worth_continuing(self) -> bool:
        """Return whether the next trials are expected to be worth their time."""
        return self.gain >= WORTH

    @property
    def gain_text(self) -> str:
        """Gain that the next trials are expected to bring, as text."""
        gain = percent(self.gain, 1) if self.gain >= SMALLEST else f"under {percent(SMALLEST, 1)}"
        return f"the next {LOOK_AHEAD} trials would bring {gain}"

    @property
    def limit_and_gain_text(self) -> str:
        """Text on the share of the hardware limit, if known, and the expected gain."""
        share = self.limit_share
        prefix = "" if share is None else f"{percent(share)} of what this machine computes for these tasks; "
        return f"{prefix}{self.gain_text}"


class TaskGap(Value):
    """How far a task's first guess was from the machine's limit, and what trials won of it."""

    operator: Annotated[str, Field(description="Operator of the task.")] = ""
    initial_gap: Annotated[float, Field(description="Natural logarithm of the guess's time over the limit.")]
    closed_gap: Annotated[
        float, Field(description="Natural logarithm of the guess's time over the best time.")
    ]

    @property
    def share(self) -> float:
        """Share of the gap to the hardware limit that trials closed (log scale)."""
        return min(1.0, self.closed_gap / self.initial_gap)


class TuningGain(Value):
    """Gain that trials would bring after a job without any, as a share of the model's latency."""

    gain: Annotated[float, Field(description="Expected gain.")]
    low: Annotated[float, Field(description="Lower end of its 80 % interval.")]
    high: Annotated[float, Field(description="Upper end of that interval.")]
    trials: Annotated[int, Field(description="Number that the forecast assumes.")]
    seconds: Annotated[float, Field(description="Duration of these trials.")]
    tasks: Annotated[list[str], Field(description="Tasks with the largest gains, largest first.")] = []
    unseen_operators: Annotated[
        list[str],
        Field(description="Operators of these tasks without a tuned job in this measuring context."),
    ] = []

    @property
    def is_worth_continuing(self) -> bool:
        """Return whether the trials are expected to be worth their time."""
        return self.gain >= LITTLE

    @property
    def gain_text(self) -> str:
        """Gain and duration expected of trials, as text."""
        if self.high <= LITTLE:
            return f"trials would win little: nothing expected above {percent(LITTLE)}"
        minutes = ceil(self.seconds / 60)
        cost = f"in about {minutes} minute{'' if minutes == 1 else 's'}"
        gain = f"{percent(self.gain)} ({self.low * 100:.0f} to {percent(self.high)})"
        names = ", ".join(
            name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}..." for name in self.tasks
        )
        sentence = f"trials would probably win {gain} {cost}, the most in {names}"
        if not self.unseen_operators:
            return sentence
        operators = ", ".join(self.unseen_operators)
        return f"{sentence}; nothing is known of {operators} on such a host, other hosts tell"
