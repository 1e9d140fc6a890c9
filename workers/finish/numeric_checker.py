"""Who may be handed out: the seam of the numeric check, and what is done where nothing can be run."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from workers.measure.base import MeasureInput, Program
from workers.process.worker_runtime import Runtime
from workers.subprocesses.crash_retry_and_advice import twice
from workers.subprocesses.errors import ChildError

INVALID: Final = "it can no longer be rebuilt"


@dataclass(frozen=True, slots=True)
class NumericCheck:
    """The numeric check of one candidate: WRONG_RESULT is for good, other failures are those of the check.

    One that is ok without a `max_error` was not checked.
    """

    outcome: Outcome
    trace: str = ""
    max_error: float | None = None
    words: str = ""

    @property
    def ok(self) -> bool:
        return not self.outcome.failed


class Checker(ABC):
    """Whether a winner may be handed out."""

    def __init__(self, runtime: Runtime, target: Target) -> None:
        self._compiler = runtime.compiler
        self._target = target

    @abstractmethod
    def verify(self, program: Program, slot: MeasureInput) -> NumericCheck:
        """Check one candidate. Raises Unavailable when the device is lost meanwhile."""

    def trace(self, program: Program, slot: MeasureInput) -> str | None:
        """The candidate's full trace; None when it is invalid by now."""
        asked = program.tir, self._target.text, slot.sketch.trace, slot.candidate.decisions
        return twice(lambda: self._compiler.full_trace(*asked))


class Unchecked(Checker):
    """Where there is nothing to run them on, winners need only be programs."""

    def verify(self, program: Program, slot: MeasureInput) -> NumericCheck:
        try:
            trace = self.trace(program, slot)
        except ChildError as error:
            return NumericCheck(Outcome.BUILD_ERROR, words=error.message)
        if trace is None:
            return NumericCheck(Outcome.BUILD_ERROR, words=INVALID)
        return NumericCheck(Outcome.OK, trace)
