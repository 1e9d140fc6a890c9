"""The base class of all passes: a name, what it needs, and a report of what it did."""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

from graphc.core.graph_rewriting import LANES


class Leave(Exception):
    """Raised with the reason why a pass leaves something as it is; reports count reasons.

    Without a reason it is not counted: the operator matches but does not concern the pass.
    """


class Unsupported(ValueError):
    """Raised if the target lacks what the job asked for: the pass may not be skipped."""


# Exceptions that do not indicate a defect of the pass.
NOT_THE_PASS = (MemoryError, OSError, Unsupported)


@dataclass
class Report:
    """How many matches a pass rewrote, and why it left the others."""

    name: str
    fired: int = 0
    left: Counter[str] = field(default_factory=Counter)  # by reason
    skipped: str = ""  # why the pass did not run
    counts: bool = True  # False if the pass does not count
    errors: Counter[str] = field(default_factory=Counter)  # errors, by message; counted in `left`, too

    @property
    def matched(self) -> int:
        return self.fired + self.left.total()

    def leave(self, reason: Leave) -> None:
        """Count a match that the pass left, if it gave a reason."""
        if reason.args:
            self.left[str(reason)] += 1


class ReportingPass(ABC):
    """A pass that reports what it did. It keeps no state between rewritten things."""

    name: ClassVar[str]  # FOLDER.VERB_PHRASE, used by reports and --without
    rules: ClassVar[tuple[str, ...]] = ()  # schedule rules that its functions name
    targets: ClassVar[tuple[str, ...]] = ()  # CPU features, one of which it needs, if any
    after: ClassVar[tuple[str, ...]] = ()  # passes that run earlier if a recipe has them
    must: ClassVar[bool] = False  # whether the module cannot be lowered without it
    needed_by: ClassVar[tuple[str, ...]] = ()  # passes whose results TVM can lower only after it

    def __init__(self, lanes: int = LANES) -> None:
        self.lanes = lanes

    def leave_after(self, error: Exception, report: Report) -> None:
        """Count a match left after an error. Raises the error if the pass must run."""
        if self.must or isinstance(error, NOT_THE_PASS):
            raise error
        first_line, *_ = str(error).strip().split("\n")
        description = f"{type(error).__name__}: {first_line}"
        report.errors[description] += 1
        report.left[description] += 1

    def __call__(self, mod: Any) -> Any:
        """Return the rewritten module."""
        return self.applied(mod)[0]

    @abstractmethod
    def applied(self, mod: Any) -> tuple[Any, Report]:
        """Return the rewritten module, and a report on everything that matches."""
