# mypy: disable-error-code="empty-body"
"""Runs programs that load this host while something is timed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.typed_method import method


class Stressor(Child):
    """A program that keeps one core and the memory bus busy until it is killed."""

    MODULE = "mallorn.workers.host.background_load_child"

    @method(limit_sec=60.0)
    def keep_busy(self) -> None:
        """Begin to compute and to stream more memory than caches hold."""


@contextmanager
def run_load_programs(programs: int) -> Iterator[None]:
    """Run so many load programs during the block. Raises ChildError if one fails."""
    with ExitStack() as stack:
        stressors = [stack.enter_context(Stressor(name=f"program {n} beside")) for n in range(programs)]
        for stressor in stressors:
            stressor.start()
        for stressor in stressors:
            stressor.keep_busy()
        yield
