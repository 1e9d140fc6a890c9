"""What can become of a candidate."""

from enum import StrEnum
from typing import Final

# To leave a candidate unbuilt is a choice: a build error whose text begins so, which is counted apart.
NOT_COMPILED: Final = "not compiled: "
LEFT_UNBUILT: Final = "left_unbuilt"
#: The share of a timing in which its processors were others': more than this makes it a bound and no time.
QUIET_SHARE: Final = 0.05


class Outcome(StrEnum):
    """The end of one candidate: every candidate handed to a builder gets exactly one."""

    OK = "ok"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    WRONG_RESULT = "wrong_result"
    WORKER_LOST = "worker_lost"
    CANCELLED = "cancelled"
    NOT_RECORDED = "not_recorded"  # a replay was asked for what its recording lacks
    WITHDRAWN = "withdrawn"  # its device is not believed any more; the error says what it was

    @classmethod
    def read(cls, word: str) -> "Outcome":
        """As stored; one of a newer version tells this one nothing of the candidate."""
        known = {each.value: each for each in cls}
        return known.get(word, cls.WORKER_LOST)

    @property
    def failed(self) -> bool:
        return self is not Outcome.OK


def is_disturbed(share: float | None) -> bool:
    """Return whether a time with this share is only an upper bound; if the share is unknown, it is none."""
    return share is not None and share > QUIET_SHARE
