"""What a finish could not do: verified schedules are handed out all the same, the report says the rest."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from mallorn.core.errors import LeaseLost, MallornError, StorageFull
from mallorn.core.values.finish_report import NotDone
from workers.process.stage_context import StageContext
from workers.subprocesses.crash_handling import advice
from workers.subprocesses.errors import ChildCrashed
from workers.whole_model.compiled_model import ONNXRUNTIME
from workers.whole_model.engines import UNTUNED, title

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


CHECK: Final = "check the tuned model"
HINT: Final = "mallorn compile MODEL --schedules DIR -o model.so --check"


def check_numbers(errors: Mapping[str, float], limit: float, undone: NotDoneLog) -> bool:
    """Whether the tuned model may be shown as a success, by its relative errors against others.

    The untuned model is asked first: it has the same operators in the same order. A model whose answers jump
    with the last digit (a rank, a threshold) may fail this with schedules that are all right, so its job ends
    with them, but without a time that would claim a gain.
    """
    reference = next((name for name in (UNTUNED, ONNXRUNTIME) if name in errors), None)
    if reference is None:
        undone.leave(CHECK, "there was nothing to compare it with; each schedule was checked alone")
        return True
    if not errors[reference] <= limit:
        undone.leave(CHECK, f"it computes something else than {_told(reference, errors, limit)}", HINT)
        return False
    if not errors.get(ONNXRUNTIME, 0.0) <= limit:
        undone.leave(
            "agree with onnxruntime", f"TVM computes something else: {_told(ONNXRUNTIME, errors, limit)}"
        )
    return True


def _told(name: str, errors: Mapping[str, float], limit: float) -> str:
    return f"{title(name)}: relative error {errors[name]:.1e}, allowed {limit:.0e}; its time is left out"
