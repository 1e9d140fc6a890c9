"""What a finish could not do, and what its steps took.

Verified schedules are handed out all the same; the report says the rest.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from mallorn.core.errors import LeaseLost, MallornError, StorageFull
from mallorn.core.values.finish_report import NotDone, StepSeconds
from workers.process.leased_stage import StageContext
from workers.subprocesses.crash_retry_and_advice import advice
from workers.subprocesses.errors import ChildCrashed
from workers.subprocesses.shutdown import STOP

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepLog:
    """Steps that were left out, each with why, and what would bring it about."""

    claimed: StageContext
    entries: list[NotDone] = field(default_factory=list)
    spent: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count what goes on meanwhile as this step's; steps do not overlap."""
        began = time.monotonic(), STOP.processor_sec() + time.process_time()
        try:
            yield
        finally:
            ended = time.monotonic(), STOP.processor_sec() + time.process_time()
            for place in range(2):
                self.spent[name][place] += ended[place] - began[place]

    @property
    def seconds(self) -> dict[str, StepSeconds]:
        return {
            name: StepSeconds(wall=round(wall, 2), processor=round(busy, 2))
            for name, (wall, busy) in self.spent.items()
        }

    def attempt(self, step: str, work: Callable[[], T]) -> T | None:
        """What `work` returns; None, and an entry, when it fails.

        A job that was taken away and a full disk end the finish as ever.
        """
        try:
            return work()
        except (LeaseLost, StorageFull):
            raise
        except MallornError as error:
            config = self.claimed.runtime.settings
            hint = advice(error, config) if isinstance(error, ChildCrashed) else error.hint
            self.leave(step, error.headline, hint)
        return None

    def leave(self, step: str, why: str, hint: str = "") -> None:
        """Enter a step that is not done; unless told otherwise, another finish may do it."""
        log.warning("job %s, not done: %s: %s", self.claimed.job.id, step, why)
        again = f"mallorn resume {self.claimed.job.id}"
        self.entries.append(NotDone(step=step, why=why, hint=hint or again))
