"""What more trials are expected to bring a job, and how far its tasks are from what can be had."""

from math import ceil
from typing import Annotated, Final

from pydantic import Field

from mallorn.core.percent_and_command_text import percent
from mallorn.core.values.base import Value

# How far a job looks ahead, in trials.
LOOK_AHEAD: Final = 100
# So much of the latency they must be expected to win to be worth their seconds: about one percent a minute
# where a trial takes a quarter of a second (docs/planner.md).
WORTH: Final = 0.005
SMALLEST: Final = 0.001  # a smaller gain is not told apart from none
_NAME_CHARS: Final = 60  # of a task in a sentence: TVM names a function after all its operators
LITTLE: Final = 0.02  # of the latency: two jobs without trials may differ by it


class Outlook(Value):
    """What the planner expected at its last decision. Latencies are sums over tasks, times their weights."""

    now_us: Annotated[float, Field(gt=0, description="The best that was measured.")]
    limit_us: Annotated[
        float | None,
        Field(
            gt=0,
            description="What the machine takes at least: as if it did nothing but compute, or nothing but "
            "move what goes in and out. Null: its constants are not known.",
        ),
    ] = None
    end_us: Annotated[float, Field(description="What is expected at the end of the tuning.")]
    gain: Annotated[
        float,
        Field(description=f"The share of `now_us` that the next {LOOK_AHEAD} trials are expected to win."),
    ]
    trials: Annotated[int, Field(description="Expected until tuning ends.")] = 0

    @property
    def reached(self) -> float | None:
        """How much of what the machine computes at most the tasks reach."""
        return None if self.limit_us is None else min(1.0, self.limit_us / self.now_us)

    @property
    def pays(self) -> bool:
        """Whether the next trials are expected to be worth their seconds."""
        return self.gain >= WORTH

    @property
    def left(self) -> str:
        """What is left to win, in words."""
        gain = percent(self.gain, 1) if self.gain >= SMALLEST else f"under {percent(SMALLEST, 1)}"
        return f"the next {LOOK_AHEAD} trials would bring {gain}"

    @property
    def words(self) -> str:
        """What is reached, where that is known, and what is left to win."""
        share = self.reached
        reached = "" if share is None else f"{percent(share)} of what this machine computes for these tasks; "
        return f"{reached}{self.left}"


class GapClosed(Value):
    """How far a first guess was from the machine's limit, and what trials won of it."""

    op: Annotated[str, Field(description="The operator.")] = ""
    open: Annotated[float, Field(description="The logarithm of its time over the limit.")]
    won: Annotated[float, Field(description="The logarithm of its time over that after trials.")]

    @property
    def share(self) -> float:
        """Of what was open."""
        return min(1.0, self.won / self.open)


class TuningGain(Value):
    """What trials are expected to win after a job without any, as a share of the model's latency."""

    gain: Annotated[float, Field(description="What is expected.")]
    low: Annotated[float, Field(description="Lower end of the interval that holds it four times in five.")]
    high: Annotated[float, Field(description="Upper end of it.")]
    trials: Annotated[int, Field(description="That are expected to win it.")]
    seconds: Annotated[float, Field(description="What they take.")]
    tasks: Annotated[list[str], Field(description="Those that win the most, the most first.")] = []
    unseen: Annotated[
        list[str],
        Field(description="Their operators of which no job with trials tells, in this measuring context."),
    ] = []

    @property
    def pays(self) -> bool:
        """Whether they are expected to be worth their seconds."""
        return self.gain >= LITTLE

    @property
    def left(self) -> str:
        """What is left to win, in words."""
        if self.high <= LITTLE:
            return f"trials would win little: nothing expected above {percent(LITTLE)}"
        minutes = ceil(self.seconds / 60)
        cost = f"in about {minutes} minute{'' if minutes == 1 else 's'}"
        gain = f"{percent(self.gain)} ({self.low * 100:.0f} to {percent(self.high)})"
        names = ", ".join(map(_short, self.tasks))
        said = f"trials would probably win {gain} {cost}, the most in {names}"
        if not self.unseen:
            return said
        return f"{said}; nothing is known of {', '.join(self.unseen)} on such a host, other hosts tell"


def _short(name: str) -> str:
    return name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}..."
