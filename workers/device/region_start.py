"""What starting and joining the threads of a parallel loop costs now, beyond the least that it cost here.

TVM's pool takes 0.7 us for it, or 1.6, in states that last for seconds: more often beside other programs, and
now and then without any (ADR 0067). Times of small kernels are true only without the difference.
"""

import ctypes
import mmap
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

STARTS: Final = 9  # that a look times; the shortest of them counts
NOISE: Final = 0.25  # of the least: a look that exceeds it by less tells of no other state
#: Through this variable of a library its code starts parallel loops.
_LAUNCHER: Final = "__TVMBackendParallelLaunch"
_Launch: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_LAYOUT: Final = "d"
_RTLD_NOLOAD: Final = 4


class RegionStart:
    """Times empty parallel loops, and remembers the least of this process, its parent and its forks."""

    def __init__(self) -> None:
        self._least = mmap.mmap(-1, struct.calcsize(_LAYOUT))

    def look(self) -> float:
        """Return the seconds that an empty parallel loop takes now."""
        launch, nothing = self._launch
        taken_ns = []
        for _ in range(STARTS):
            began_ns = time.perf_counter_ns()
            launch(nothing, None, 0)
            taken_ns.append(time.perf_counter_ns() - began_ns)
        sec = min(taken_ns) / 1e9
        least_sec = self.least_sec()
        if not least_sec or sec < least_sec:
            struct.pack_into(_LAYOUT, self._least, 0, sec)
        return sec

    def least_sec(self) -> float:
        """Return the shortest that was seen; 0 before the first look."""
        least: float = struct.unpack_from(_LAYOUT, self._least)[0]
        return least

    def excess(self, sec: float) -> float:
        """Return by how many seconds a look exceeds the least; 0 where that is noise."""
        excess_sec = sec - self.least_sec()
        return excess_sec if excess_sec > NOISE * self.least_sec() else 0.0

    @cached_property
    def _launch(self) -> tuple[Callable[..., int], Any]:
        """TVM's function that starts a parallel loop, and a loop body that does nothing but wait for all."""
        runtime = ctypes.CDLL(None)
        launch: Any = runtime.TVMBackendParallelLaunch
        launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
        return launch, ctypes.cast(runtime.TVMBackendParallelBarrier, ctypes.c_void_p)


#: One for a device: its sessions are forks of the process that imported this.
REGION_START: Final = RegionStart()


def count_regions(run: Callable[[], object]) -> int:
    """Run a function of a library once, and return how many parallel loops it started."""
    started: list[None] = []
    with ExitStack() as stack:
        for launcher in _launchers():
            stack.enter_context(_counted(launcher, lambda: started.append(None)))
        run()
    return len(started)


def _launchers() -> Iterator[ctypes.c_void_p]:
    """Yield the launcher of each library that TVM's compiler made and this process has loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    for path in {line.split(maxsplit=5)[5] for line in lines if line.endswith(".so")}:
        try:
            library = ctypes.CDLL(path, _RTLD_NOLOAD)
            yield ctypes.c_void_p.in_dll(library, _LAUNCHER)
        except (OSError, ValueError):  # none of ours, or it was deleted
            continue


@contextmanager
def _counted(launcher: ctypes.c_void_p, note: Callable[[], None]) -> Iterator[None]:
    """Have a launcher note each loop that it starts."""
    before = launcher.value
    if before is None:
        yield
        return
    launch: Callable[[int, int, int], int] = _Launch(before)

    def noted(body: int, data: int, tasks: int) -> int:
        note()
        return launch(body, data, tasks)

    replacement = _Launch(noted)
    launcher.value = ctypes.cast(replacement, ctypes.c_void_p).value
    try:
        yield
    finally:
        launcher.value = before
