# mypy: disable-error-code="empty-body"
"""A child that imports, compiles and runs one case, and may die of it."""

from dataclasses import dataclass

from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.typed_method import method


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a case: right, or why not."""

    outcome: str  # right, wrong, refused
    message: str = ""


class Trying(Child):
    """Tries cases by their names."""

    MODULE = "benchmarks.zoo.trying_child"
    SPAWNS = True  # a linker, for what has no kernels

    @method(limit_sec=60.0)
    def try_case(self, name: str) -> Answer:
        """Import it, compile it as TVM does by default, run it, and compare."""
