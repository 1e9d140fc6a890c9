"""Times of work on a GPU by CUDA events, and fills of memory that empty its L2 cache or keep it busy.

TVM's own timer of CUDA cannot be started from Python, and its `time_evaluator` makes the host wait between a
flush of the cache and the run, so that the launch counts. All work is on the default stream, which is TVM's.
"""

import ctypes
import time
from typing import Any, Final

import tvm

# The L2 cache of some GPUs has two halves, each of which may hold the same line.
FLUSH_SHARE: Final = 2.0
# A GPU is kept busy before a run for this many times the seconds in which the host queued the last run.
LEAD: Final = 1.2
# By fills of a part of its L2 cache, so that the rest stays as it was; a queue holds about 1000 calls.
LEAD_SHARE: Final = 0.25
MOST_FILLS: Final = 800
_STREAM: Final = ctypes.c_void_p(None)


class CudaClock:
    """Marks moments in a GPU's queue of work. The host waits only at the end of a run.

    The GPU is busy until the host has queued a whole run. It would wait for the host before every kernel
    otherwise, and each launch would count as its kernel's time.
    """

    def __init__(self, runtime: Any, l2_bytes: int) -> None:
        """`runtime` is the CUDA runtime library, as ctypes loads it."""
        self._runtime = runtime
        self._l2_bytes = l2_bytes
        self._scratch: ctypes.c_void_p | None = None
        self._events: list[ctypes.c_void_p] = []
        self._marks = 0
        self._fill_sec = self._queue_sec = self._began_sec = 0.0

    @classmethod
    def of_device(cls) -> "CudaClock":
        """Return the clock of the first GPU, by the library that TVM's CUDA runtime has loaded."""
        return cls(ctypes.CDLL(None), int(tvm.runtime.device("cuda", 0).l2_cache_size_bytes or 0))

    def begin_run(self) -> None:
        """Forget all marks, and give the GPU other work until the host has queued the run."""
        self._marks = 0
        if self._queue_sec and not self._fill_sec:
            begin = self.mark()
            self.fill(LEAD_SHARE)
            end = self.mark()
            self._call("cudaStreamSynchronize", _STREAM)
            self._fill_sec, self._marks = max(self.seconds(begin, end), 1e-6), 0
        fills = self._queue_sec * LEAD / self._fill_sec if self._fill_sec else 0.0
        for _ in range(min(MOST_FILLS, round(fills))):
            self.fill(LEAD_SHARE)
        self._began_sec = time.perf_counter()

    def mark(self) -> int:
        """Put a mark behind the work that is queued so far, and return its number for `seconds`."""
        if self._marks == len(self._events):
            event = ctypes.c_void_p()
            self._call("cudaEventCreate", ctypes.byref(event))
            self._events.append(event)
        self._call("cudaEventRecord", self._events[self._marks], _STREAM)
        self._marks += 1
        return self._marks - 1

    def end_run(self) -> None:
        """Wait for all queued work. Raises RuntimeError for an error of that work."""
        self._queue_sec = time.perf_counter() - self._began_sec
        self._call("cudaStreamSynchronize", _STREAM)

    def seconds(self, begin: int, end: int) -> float:
        """Return the seconds between two marks of the run that is over."""
        elapsed_ms = ctypes.c_float()
        events = self._events[begin], self._events[end]
        self._call("cudaEventElapsedTime", ctypes.byref(elapsed_ms), *events)
        return elapsed_ms.value / 1e3

    def fill(self, share: float = FLUSH_SHARE) -> None:
        """Queue a fill of as much memory as this share of the L2 cache; the default empties the cache."""
        if self._scratch is None:
            scratch, whole = ctypes.c_void_p(), ctypes.c_size_t(int(FLUSH_SHARE * self._l2_bytes))
            self._call("cudaMalloc", ctypes.byref(scratch), whole)
            self._scratch = scratch
        part = ctypes.c_size_t(int(share * self._l2_bytes))
        self._call("cudaMemsetAsync", self._scratch, 0, part, _STREAM)

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._runtime, function)(*arguments)
        if code:
            name = self._runtime.cudaGetErrorName
            name.restype = ctypes.c_char_p
            # The words of TVM's own macro, TVM_FFI_CHECK_CUDA_ERROR.
            raise RuntimeError(f"CUDA Runtime Error: {name(code).decode()} ({code}): {function}")
