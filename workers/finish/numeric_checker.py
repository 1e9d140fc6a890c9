"""Interface of the numeric check of winners, and its version for targets without a device."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from workers.measure.base import MeasureInput, Program
from workers.process.worker_runtime import Runtime
from workers.subprocesses.errors import ChildError, twice

INVALID: Final = "it can no longer be rebuilt"


@dataclass(frozen=True, slots=True)
class NumericCheck:
    """Result of the numeric check of one candidate.

    WRONG_RESULT is final; other failures mean that the check itself failed. OK without a
    `max_error` means that the candidate was not checked.
    """

    outcome: Outcome
    trace: str = ""
    max_error: float | None = None
    words: str = ""

    @property
    def ok(self) -> bool:
        return not self.outcome.failed


class Checker(ABC):
    """Decides whether a winner may be exported."""

    def __init__(self, runtime: Runtime, target: Target) -> None:
        self._compiler = runtime.compiler
        self._target = target

    @abstractmethod
    def verify(self, program: Program, slot: MeasureInput) -> NumericCheck:
        """Check one candidate. Raises Unavailable if the device is lost during the check."""

    def trace(self, program: Program, slot: MeasureInput) -> str | None:
        """Return the candidate's full trace; None if it can no longer be rebuilt."""
        arguments = program.tir, self._target.text, slot.sketch.trace, slot.candidate.decisions
        return twice(lambda: self._compiler.full_trace(*arguments))


class Unchecked(Checker):
    """Accepts every winner whose trace can be rebuilt, for use without a device."""

    def verify(self, program: Program, slot: MeasureInput) -> NumericCheck:
        try:
            trace = self.trace(program, slot)
        except ChildError as error:
            return NumericCheck(Outcome.BUILD_ERROR, words=error.message)
        if trace is None:
            return NumericCheck(Outcome.BUILD_ERROR, words=INVALID)
        return NumericCheck(Outcome.OK, trace)
