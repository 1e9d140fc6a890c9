"""Result of a finish for one task, stored so that another worker can continue the finish."""

from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value
from mallorn.core.values.trial import Trial


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
    versions: tuple["DecidedWinner", ...] = ()


class DecidedTask(Value):
    """The candidates of a task that were compared, and the one that won."""

    candidates: tuple[KeptCandidate, ...]
    guess: KeptCandidate | None = None
    winner: Annotated[DecidedWinner | None, Field(description="null: none gave correct results.")] = None
    sec: Annotated[float, Field(description="Duration of the decision.")] = 0.0
    code: Annotated[str, Field(description="Digest of the code that built the candidates.")] = ""
