"""A round from the planner to the database."""

from dataclasses import dataclass, field

from mallorn.core.values.decision_log import RoundNotes


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """One round to open, and why."""

    task_id: int
    index: int
    size: int
    seed: int
    reason: RoundNotes = field(default_factory=RoundNotes)
    searcher: str | None = None  # None: the job's own
