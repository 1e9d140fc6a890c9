"""States of jobs, tasks and rounds, and their transitions.

job:   queued -> importing -> tuning -> finishing -> done
       any of the first four -> failed | cancelled;  queued..tuning <-> paused;  done -> tuning (more trials)
       done with something left out, or failed in finishing -> finishing (resume without trials)
round: queued -> leased -> done;  queued|leased -> cancelled
       leased -> queued (lease lost, at most twice) -> poison
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

# How a job finds schedules: measure candidates, or use known results, checked or unchecked.
Mode = Literal["search", "one-shot", "zero-shot"]
SEARCH: Final = "search"
ZERO_SHOT: Final = "zero-shot"
DatasetUse = Literal["write", "read", "off"]  # the most sharing first
WRITE: Final = "write"
OFF: Final = "off"


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
    def is_final(self) -> bool:
        return self in FINAL


FINAL: Final = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


class Cause(StrEnum):
    """Why a job waits, for programs; `waiting_because` says it to people."""

    OTHER = "other"  # any other cause, which `waiting_because` names
    OWNER = "owner"  # the owner paused the job; a client that follows it keeps waiting
    NO_DEVICE = "no_device"  # no device of the job's target answers
    NOT_HERE = "not_here"  # no device answers, and the service's machine cannot run one
    UNLIKE = "unlike"  # the times of the devices that answer do not compare with the job's

    @classmethod
    def _missing_(cls, _of_a_newer_version: object) -> "Cause":
        return cls.OTHER


@dataclass(frozen=True, slots=True)
class Waiting:
    """Columns of a job that waits: why, what its owner can type, and the cause for programs."""

    waiting_because: str
    hint: str = ""
    cause: Cause = Cause.OTHER


PAUSED_BY_OWNER: Final = Waiting("paused by its owner", cause=Cause.OWNER)


class TaskState(StrEnum):
    """State of a task of a job."""

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
    def is_open(self) -> bool:
        return self in (RoundState.QUEUED, RoundState.LEASED)


class WorkKind(StrEnum):
    """Kinds of work for which a process needs a lease, so that no other does it as well."""

    ROUND = "round"
    IMPORT = "import"
    FINISH = "finish"
    PLAN = "plan"  # plan the rounds of all jobs of a target
    MACHINE = "machine"  # probe a device's compute rate and bandwidth


class StageKind(StrEnum):
    """Kinds of work that a worker does for a job other than rounds."""

    IMPORT = "import"
    TRAIN = "train"
    FINISH = "finish"


class MeasurementKind(StrEnum):
    """Purpose of a measurement; only `trial` rows count against a job's budget."""

    TRIAL = "trial"
    FINISH = "finish"
    FOREIGN = "foreign"  # a trial imported from another dataset
    FOREIGN_FINISH = "foreign_finish"

    @property
    def kind_after_import(self) -> "MeasurementKind":
        """Kind of such a row after import from another dataset: it only trains models."""
        return _IMPORTED.get(self, self)

    @property
    def kind_before_import(self) -> "MeasurementKind":
        """Kind that an imported row had in the dataset in which it was measured."""
        return next((original for original, imported in _IMPORTED.items() if imported is self), self)


_IMPORTED: Final = {
    MeasurementKind.TRIAL: MeasurementKind.FOREIGN,
    MeasurementKind.FINISH: MeasurementKind.FOREIGN_FINISH,
}
