"""What a finish decided for a task, as it is kept for whoever goes on with the finish."""

from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value


class KeptCandidate(Value):
    """A candidate by its sketch's key."""

    sketch: str
    decisions: tuple[int, ...]
    means: Annotated[str, Field(description="How it was found.")] = ""


class KeptWinner(Value):
    """A candidate that may be handed out, by its place among those that were compared."""

    slot: int
    run_us: tuple[float, ...]
    disturbed: float | None = None  # as of a trial
    build_ms: float | None = None
    trace: str
    max_error: float | None = None
    rivals: tuple["KeptWinner", ...] = ()
    guess: "KeptWinner | None" = None
    versions: tuple["KeptWinner", ...] = ()


class DecidedTask(Value):
    """The candidates that were compared, and who won."""

    candidates: tuple[KeptCandidate, ...]
    guess: KeptCandidate | None = None
    winner: Annotated[KeptWinner | None, Field(description="null: none computes the right thing.")] = None
    sec: Annotated[float, Field(description="What the decision took.")] = 0.0
