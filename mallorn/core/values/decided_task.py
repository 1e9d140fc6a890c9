"""What a finish decided for a task, as it is kept for whoever goes on with the finish."""

from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value
from mallorn.core.values.trial import Trial


class KeptCandidate(Value):
    """A candidate by its sketch's key."""

    sketch: str
    decisions: tuple[int, ...]
    means: Annotated[str, Field(description="How it was found.")] = ""


class DecidedWinner(Value):
    """A candidate that may be handed out, by its place among those that were compared."""

    slot: int
    trial: Trial
    trace: str
    max_error: float | None = None
    rivals: tuple["DecidedWinner", ...] = ()
    guess: "DecidedWinner | None" = None
    versions: tuple["DecidedWinner", ...] = ()


class DecidedTask(Value):
    """The candidates that were compared, and who won."""

    candidates: tuple[KeptCandidate, ...]
    guess: KeptCandidate | None = None
    winner: Annotated[DecidedWinner | None, Field(description="null: none computes the right thing.")] = None
    sec: Annotated[float, Field(description="What the decision took.")] = 0.0
    code: Annotated[str, Field(description="Digest of the code that built what was compared.")] = ""
