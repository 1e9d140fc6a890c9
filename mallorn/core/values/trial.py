"""Results of candidates: a trial, and the winner chosen for one task at a job's end."""

from dataclasses import dataclass
from statistics import median
from typing import Annotated

from pydantic import Field

from mallorn.core.outcomes import Outcome, is_disturbed
from mallorn.core.values.base import Value
from mallorn.core.values.candidate import Candidate


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate and its result; columns that the query left out have their defaults.

    Latencies compare only within one workload, target and measuring context.
    """

    candidate: Candidate
    outcome: Outcome
    latency_us: float | None = None  # median of `run_us`; None if the candidate failed
    origin: str = ""  # the searcher that proposed it, or searcher:means
    build_ms: float | None = None
    run_us: tuple[float, ...] = ()  # empty unless the outcome is ok
    run_ms: float | None = None  # wall time on the device
    error: str = ""
    predicted: float | None = None  # the cost model's prediction before the measurement
    disturbed: float | None = None  # share of the run times that were disturbed; None: unknown

    def __post_init__(self) -> None:
        if self.latency_us is None and self.run_us:
            object.__setattr__(self, "latency_us", median(self.run_us))

    @property
    def time_us(self) -> float | None:
        """Latency of a correct candidate; None if it failed or is only an upper bound."""
        return self.latency_us if self.outcome is Outcome.OK and not self.is_bound else None

    @property
    def is_bound(self) -> bool:
        """Return whether the latency is an upper bound because timing was disturbed."""
        return is_disturbed(self.disturbed)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate to measure, its predicted score, and its origin, such as `ga:mutation`."""

    candidate: Candidate
    predicted: float | None
    origin: str


class KeptCandidate(Value):
    """A stored candidate: the key of its sketch, and its decisions."""

    sketch: str
    decisions: tuple[int, ...]
    means: Annotated[str, Field(description="Search method that found it.")] = ""


class DecidedWinner(Value):
    """A candidate whose schedule may be exported; `slot` is its index among those compared."""

    slot: int
    trial: Trial
    trace: str
    max_error: float | None = None
    rivals: tuple["DecidedWinner", ...] = ()
    guess: "DecidedWinner | None" = None


class DecidedTask(Value):
    """The candidates of a task that were compared, and the one that won."""

    candidates: tuple[KeptCandidate, ...]
    guess: KeptCandidate | None = None
    winner: Annotated[DecidedWinner | None, Field(description="null: none gave correct results.")] = None
    sec: Annotated[float, Field(description="Duration of the decision.")] = 0.0
    code: Annotated[str, Field(description="Digest of the code that built the candidates.")] = ""
