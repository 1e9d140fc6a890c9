"""A measured candidate: one value, from the device over the dataset to searchers and cost models."""

from dataclasses import dataclass
from statistics import median

from mallorn.core.outcomes import Outcome, is_disturbed
from mallorn.core.values.candidate import Candidate


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
