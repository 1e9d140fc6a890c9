# mypy: disable-error-code="empty-body"
"""Other programs on this host, for as long as something is timed beside them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from workers.subprocesses.child_process import Child
from workers.subprocesses.typed_method import method


class Stressor(Child):
    """A program that keeps one core, and the way to memory, busy until it is killed."""

    MODULE = "workers.host.background_load_child"

    @method(limit_sec=60.0)
    def keep_busy(self) -> None:
        """Begin to compute and to stream memory, more than caches hold."""


@contextmanager
def stress(programs: int) -> Iterator[None]:
    """Have so many programs work meanwhile; none is left, however this process ends. Raises ChildError."""
    with ExitStack() as held:
        stressors = [held.enter_context(Stressor(name=f"program {n} beside")) for n in range(programs)]
        for stressor in stressors:
            stressor.start()
        for stressor in stressors:
            stressor.keep_busy()
        yield
