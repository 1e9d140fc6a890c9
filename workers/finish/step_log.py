"""Log of a job's finish: the steps that were not done, and the seconds that each step took.

Verified schedules are exported even if other steps fail; the report lists the failed steps.
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
from workers.subprocesses.errors import ChildCrashed, advice
from workers.subprocesses.shutdown import STOP

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepLog:
    """Steps that were not done, each with its reason and a hint; and seconds per step."""

    claimed: StageContext
    entries: list[NotDone] = field(default_factory=list)
    spent: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the wall and CPU seconds of the `with` block to a step. Steps must not nest."""
        began = time.monotonic(), STOP.processor_sec() + time.process_time()
        try:
            yield
        finally:
            ended = time.monotonic(), STOP.processor_sec() + time.process_time()
            for clock in range(2):
                self.spent[name][clock] += ended[clock] - began[clock]

    @property
    def seconds(self) -> dict[str, StepSeconds]:
        return {
            name: StepSeconds(wall=round(wall, 2), processor=round(busy, 2))
            for name, (wall, busy) in self.spent.items()
        }

    def attempt(self, step: str, work: Callable[[], T]) -> T | None:
        """Return the result of `work`; if it raises MallornError, log the step and return None.

        LeaseLost and StorageFull are raised again, because they end the finish.
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
        """Record that a step was not done. The default hint is to resume the job."""
        log.warning("job %s, not done: %s: %s", self.claimed.job.id, step, why)
        resume_command = f"mallorn resume {self.claimed.job.id}"
        self.entries.append(NotDone(step=step, why=why, hint=hint or resume_command))
