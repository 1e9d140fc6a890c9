"""The states of jobs, tasks and rounds, and which of them are final.

job:   queued -> importing -> tuning -> finishing -> done
       any of the first four -> failed | cancelled;  queued..tuning <-> paused;  done -> tuning (more trials)
       done with something left out, or failed in finishing -> finishing (resume without trials)
round: queued -> leased -> done;  queued|leased -> cancelled
       leased -> queued (lease lost, at most twice) -> poison
"""

from enum import StrEnum
from typing import Final, Literal

# How a job comes to its schedules: by measuring candidates, or by what is known, checked or as it is.
Mode = Literal["search", "one-shot", "zero-shot"]
SEARCH: Final = "search"
ZERO_SHOT: Final = "zero-shot"


class JobState(StrEnum):
    QUEUED = "queued"
    IMPORTING = "importing"
    TUNING = "tuning"
    FINISHING = "finishing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PAUSED = "paused"

    @property
    def final(self) -> bool:
        return self in FINAL


FINAL: Final = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


class Cause(StrEnum):
    """What a job's reason is about, for programs: its words are for people."""

    OTHER = "other"  # what the words say, and nobody has to tell apart
    OWNER = "owner"  # its owner paused it: whoever follows it waits for that person
    NO_DEVICE = "no_device"  # no device of its target answers
    NOT_HERE = "not_here"  # nor can the service's own machine run one
    UNLIKE = "unlike"  # those that answer are not as the one that took the job's times

    @classmethod
    def _missing_(cls, _of_a_newer_version: object) -> "Cause":
        return cls.OTHER


PAUSED_BY_OWNER: Final = "paused by its owner"


class TaskState(StrEnum):
    """What happens to a task of a job right now."""

    MEASURING = "measuring"
    WAITING = "waiting"
    RETIRED = "retired"
    DONE = "done"


class RoundState(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    POISON = "poison"
    CANCELLED = "cancelled"

    @property
    def open(self) -> bool:
        return self in (RoundState.QUEUED, RoundState.LEASED)


class WorkKind(StrEnum):
    """What one process at a time does, under a lease."""

    ROUND = "round"
    IMPORT = "import"
    FINISH = "finish"
    PLAN = "plan"  # the planner's turn at a target
    MACHINE = "machine"  # finding out what a device computes and moves


class StageKind(StrEnum):
    """What a worker does for a job besides its rounds."""

    IMPORT = "import"
    TRAIN = "train"
    FINISH = "finish"


class MeasurementKind(StrEnum):
    """Why a candidate was measured; only `trial` rows are spent from a budget."""

    TRIAL = "trial"
    FINISH = "finish"
    FOREIGN = "foreign"  # a trial of another dataset
    FOREIGN_FINISH = "foreign_finish"

    @property
    def foreign(self) -> "MeasurementKind":
        """What a measurement is where it is imported: it teaches, and is never promoted."""
        return _IMPORTED.get(self, self)

    @property
    def measured(self) -> "MeasurementKind":
        """What it was where it was measured."""
        return next((here for here, there in _IMPORTED.items() if there is self), self)


_IMPORTED: Final = {
    MeasurementKind.TRIAL: MeasurementKind.FOREIGN,
    MeasurementKind.FINISH: MeasurementKind.FOREIGN_FINISH,
}
