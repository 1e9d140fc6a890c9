"""Records of a running finish: its report so far, steps not done, seconds per step.

Verified schedules are exported even if other steps fail; the report lists the failed steps.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import ConfigDict

from mallorn.core.errors import LeaseLost, MallornError, StorageFull
from mallorn.core.values.finish_report import FinishReport, SkippedStep, StepSeconds
from mallorn.workers.interfaces.whole_model_engine import WrongImport
from mallorn.workers.process.leased_work import LeasedStage
from mallorn.workers.subprocesses.errors import ChildCrashed, suggest_next_step
from mallorn.workers.subprocesses.shutdown import STOP

log = logging.getLogger(__name__)
T = TypeVar("T")
STEP_WORDS: Final = {
    "probe": "the machine and the compiler are checked",
    "propose": "schedules are proposed without trials",
    "decide": "the best candidates are timed and checked again",
    "build": "the whole model is compiled",
    "check": "the whole model's outputs are checked",
    "time": "kernels are timed inside the whole model",
    "export": "schedules and library are stored",
    "compare": "the whole model is compared with other engines and timed",
}


class ReportDraft(FinishReport):
    """A report whose fields a finish sets step by step; others are not stored."""

    model_config = ConfigDict(frozen=False)


@dataclass(frozen=True, slots=True)
class StepLog:
    """The steps that a finish did not do, with reasons and hints; seconds per step."""

    stage: LeasedStage
    entries: list[SkippedStep] = field(default_factory=list)
    spent: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))

    @contextmanager
    def time_step(self, name: str) -> Iterator[None]:
        """Show the step to the user, and add the block's seconds. Steps must not nest."""
        self.stage.set_step(STEP_WORDS[name])
        start = time.monotonic(), STOP.children_cpu_sec() + time.process_time()
        try:
            yield
        finally:
            end = time.monotonic(), STOP.children_cpu_sec() + time.process_time()
            for clock in range(2):
                self.spent[name][clock] += end[clock] - start[clock]

    @property
    def seconds(self) -> dict[str, StepSeconds]:
        return {
            name: StepSeconds(wall=round(wall, 2), processor=round(busy, 2))
            for name, (wall, busy) in self.spent.items()
        }

    def attempt(self, step: str, work: Callable[[], T]) -> T | None:
        """Return the result of `work`, or log its MallornError and return None; but raise
        LeaseLost, StorageFull and WrongImport again: they end the finish."""
        try:
            return work()
        except (LeaseLost, StorageFull, WrongImport):
            raise
        except MallornError as error:
            config = self.stage.runtime.settings
            hint = suggest_next_step(error, config) if isinstance(error, ChildCrashed) else error.hint
            self.log_skipped_step(step, error.headline, hint)
        return None

    def log_skipped_step(self, step: str, why: str, hint: str = "") -> None:
        """Record that a step was not done, why, and what to do (else: resume the job)."""
        log.warning("job %s, not done: %s: %s", self.stage.job.id, step, why)
        resume_command = f"mallorn resume {self.stage.job.id}"
        self.entries.append(SkippedStep(step=step, reason=why, hint=hint or resume_command))
