"""What a finish could not do: verified schedules are handed out all the same, the report says the rest."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from mallorn.core.errors import LeaseLost, MallornError, StorageFull
from mallorn.core.values.finish_report import NotDone
from workers.process.leased_stage import StageContext
from workers.subprocesses.crash_retry_and_advice import advice
from workers.subprocesses.errors import ChildCrashed

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NotDoneLog:
    """Steps that were left out, each with why, and what would bring it about."""

    claimed: StageContext
    entries: list[NotDone] = field(default_factory=list)

    def attempt(self, step: str, work: Callable[[], T]) -> T | None:
        """What `work` returns; None, and an entry, when it fails.

        A job that was taken away and a full disk end the finish as ever.
        """
        try:
            return work()
        except (LeaseLost, StorageFull):
            raise
        except MallornError as error:
            hint = error.hint
            if isinstance(error, ChildCrashed):
                hint = advice(error, self.claimed.runtime.settings)
            self.leave(step, error.headline, hint)
        return None

    def leave(self, step: str, why: str, hint: str = "") -> None:
        """Enter a step that is not done; unless told otherwise, another finish may do it."""
        log.warning("job %s, not done: %s: %s", self.claimed.job.id, step, why)
        again = f"mallorn resume {self.claimed.job.id}"
        self.entries.append(NotDone(step=step, why=why, hint=hint or again))
