"""Outcomes of building and running candidates; when a time is only an upper bound."""

from enum import StrEnum
from typing import Final

# Beginning of the build error of a candidate left unbuilt on purpose, counted separately.
NOT_COMPILED: Final = "not compiled: "
LEFT_UNBUILT: Final = "left_unbuilt"
#: If other programs had a timing's processors for more than this share, it is an upper bound.
QUIET_SHARE: Final = 0.05


class Outcome(StrEnum):
    """The outcome of a candidate: each one passed to a builder gets exactly one."""

    OK = "ok"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    WRONG_RESULT = "wrong_result"
    WORKER_LOST = "worker_lost"
    CANCELLED = "cancelled"
    NOT_RECORDED = "not_recorded"  # the virtual device has no result of the candidate
    WITHDRAWN = "withdrawn"  # the device proved unreliable; the error names the former outcome

    @classmethod
    def read(cls, word: str) -> "Outcome":
        """Parse a stored outcome; WORKER_LOST for one that only newer versions know."""
        return {outcome.value: outcome for outcome in cls}.get(word, cls.WORKER_LOST)

    @property
    def failed(self) -> bool:
        return self is not Outcome.OK


def is_disturbed(share: float | None) -> bool:
    """Return whether so much of a timing was disturbed that it is only an upper bound."""
    return share is not None and share > QUIET_SHARE
