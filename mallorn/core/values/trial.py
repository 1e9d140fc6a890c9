"""A measured candidate: one value, from the device over the dataset to searchers and cost models."""

from dataclasses import dataclass
from statistics import median
from typing import Final

from mallorn.core.outcomes import Outcome
from mallorn.core.values.candidate import Candidate

#: The share of a timing in which its processors were others': more than this makes it a bound and no time.
QUIET_SHARE: Final = 0.05


def is_disturbed(share: float | None) -> bool:
    """Whether a time with this share is only an upper bound; one of which nothing is known is believed."""
    return share is not None and share > QUIET_SHARE


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate and what became of it, as far as its reader asked: other fields are left as they are here.

    Latencies compare only within one workload, target and measuring context, which whoever has it knows.
    """

    candidate: Candidate
    outcome: Outcome
    latency_us: float | None = None  # the median of `run_us`; None where it failed
    origin: str = ""  # whose idea it was: searcher, or searcher:means
    build_ms: float | None = None
    run_us: tuple[float, ...] = ()  # empty unless the outcome is ok
    run_ms: float | None = None  # wall time on the device
    error: str = ""
    predicted: float | None = None  # by the cost model, before it was measured
    disturbed: float | None = None  # share of its run times with its processors at others'; None: unknown

    def __post_init__(self) -> None:
        if self.latency_us is None and self.run_us:
            object.__setattr__(self, "latency_us", median(self.run_us))

    @property
    def time_us(self) -> float | None:
        """The latency of a candidate that works; what is fast and wrong has none, nor has a mere bound."""
        return self.latency_us if self.outcome is Outcome.OK and not self.is_bound else None

    @property
    def is_bound(self) -> bool:
        """Whether its latency is an upper bound alone: others had its processors meanwhile."""
        return is_disturbed(self.disturbed)
