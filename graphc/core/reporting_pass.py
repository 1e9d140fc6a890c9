"""What passes of a network have in common: a name, what they need, and a report of what they did."""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

from graphc.core.graph_rewriting import LANES


class Leave(Exception):
    """Why a pass leaves something as it is: a phrase about it, which reports count.

    Without one it does not count: it is no concern of the pass, though of an operator that this matches.
    """


class Unsupported(ValueError):
    """The target lacks what the job asked for, so the pass may not be left out."""


# Exceptions that say nothing against the pass.
NOT_THE_PASS = (MemoryError, OSError, Unsupported)


@dataclass
class Report:
    """What became of what a pass matches."""

    name: str
    fired: int = 0
    left: Counter[str] = field(default_factory=Counter)  # by reason
    skipped: str = ""  # why the pass was not run at all
    counts: bool = True  # False where a pass tells nothing
    errors: Counter[str] = field(default_factory=Counter)  # calls left, by what was raised

    @property
    def matched(self) -> int:
        return self.fired + self.left.total()

    def leave(self, reason: Leave) -> None:
        """Count what a pass left."""
        if reason.args:
            self.left[str(reason)] += 1


class ReportingPass(ABC):
    """A pass that says what it did. It keeps nothing between the things that it rewrites."""

    name: ClassVar[str]  # FOLDER.VERB_PHRASE, as reports and --without have it
    rules: ClassVar[tuple[str, ...]] = ()  # schedule rules that its functions name
    targets: ClassVar[tuple[str, ...]] = ()  # features of processors, one of which it needs; none: all do
    after: ClassVar[tuple[str, ...]] = ()  # passes that come earlier where a recipe has them
    must: ClassVar[bool] = False  # whether the module does not lower without it
    needed_by: ClassVar[tuple[str, ...]] = ()  # passes that TVM lowers after this one alone

    def __init__(self, lanes: int = LANES) -> None:
        self.lanes = lanes

    def leave_after(self, error: Exception, report: Report) -> None:
        """Count something that the pass leaves. Raises the error if it may leave nothing."""
        if self.must or isinstance(error, NOT_THE_PASS):
            raise error
        first_line, *_ = str(error).strip().split("\n")
        words = f"{type(error).__name__}: {first_line}"
        report.errors[words] += 1
        report.left[words] += 1

    def __call__(self, mod: Any) -> Any:
        """The module, rewritten."""
        return self.applied(mod)[0]

    @abstractmethod
    def applied(self, mod: Any) -> tuple[Any, Report]:
        """The module, rewritten, and what became of all that matches."""
