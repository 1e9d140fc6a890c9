"""Times GPU work by CUDA events; fills memory to empty the L2 cache or keep the GPU busy.

Python cannot start TVM's own CUDA timer, and with ``time_evaluator`` the host waits between
a cache flush and the run, so that launch time counts. All work uses TVM's default stream.
"""

import ctypes
import time
from typing import Any, Final

import tvm

# Some GPUs split their L2 cache in two halves, and both may hold the same line.
FLUSH_SHARE: Final = 2.0
# The GPU is kept busy before a run for LEAD times as long as the last run took to be queued.
LEAD: Final = 1.2
# Each such fill overwrites only this share of the L2 cache; CUDA's queue holds about 1000 calls.
LEAD_SHARE: Final = 0.25
MOST_FILLS: Final = 800
_STREAM: Final = ctypes.c_void_p(None)


class CudaClock:
    """Times GPU work by marks (CUDA events); the host waits only at the end of a run.

    The GPU is kept busy until the host has queued a whole run. Otherwise the GPU would wait
    for the host before every kernel, and the time of a kernel would include its launch.
    """

    def __init__(self, runtime: Any, l2_bytes: int) -> None:
        """Use `runtime`, the CUDA runtime library as ctypes loads it."""
        self._runtime = runtime
        self._l2_bytes = l2_bytes
        self._scratch: ctypes.c_void_p | None = None
        self._events: list[ctypes.c_void_p] = []
        self._marks = 0
        self._fill_sec = self._queue_sec = self._began_sec = 0.0

    @classmethod
    def for_first_gpu(cls) -> "CudaClock":
        """Return a clock for the first GPU, by the CUDA runtime that TVM has loaded."""
        return cls(ctypes.CDLL(None), int(tvm.runtime.device("cuda", 0).l2_cache_size_bytes or 0))

    def begin_run(self) -> None:
        """Discard all marks; fill memory to keep the GPU busy while the run is queued."""
        self._marks = 0
        if self._queue_sec and not self._fill_sec:
            begin = self.record_mark()
            self.queue_memory_fill(LEAD_SHARE)
            end = self.record_mark()
            self._call("cudaStreamSynchronize", _STREAM)
            self._fill_sec, self._marks = max(self.seconds_between(begin, end), 1e-6), 0
        fills = self._queue_sec * LEAD / self._fill_sec if self._fill_sec else 0.0
        for _ in range(min(MOST_FILLS, round(fills))):
            self.queue_memory_fill(LEAD_SHARE)
        self._began_sec = time.perf_counter()

    def record_mark(self) -> int:
        """Queue a mark after the work queued so far; return its number for `seconds`."""
        if self._marks == len(self._events):
            event = ctypes.c_void_p()
            self._call("cudaEventCreate", ctypes.byref(event))
            self._events.append(event)
        self._call("cudaEventRecord", self._events[self._marks], _STREAM)
        self._marks += 1
        return self._marks - 1

    def end_run(self) -> None:
        """Wait for all queued work. Raises RuntimeError if any of that work failed."""
        self._queue_sec = time.perf_counter() - self._began_sec
        self._call("cudaStreamSynchronize", _STREAM)

    def seconds_between(self, begin: int, end: int) -> float:
        """Return the seconds between two marks of the finished run."""
        elapsed_ms = ctypes.c_float()
        events = self._events[begin], self._events[end]
        self._call("cudaEventElapsedTime", ctypes.byref(elapsed_ms), *events)
        return elapsed_ms.value / 1e3

    def queue_memory_fill(self, share: float = FLUSH_SHARE) -> None:
        """Queue a fill of `share` times the L2 cache's size; the default empties it."""
        if self._scratch is None:
            scratch, size = ctypes.c_void_p(), ctypes.c_size_t(int(FLUSH_SHARE * self._l2_bytes))
            self._call("cudaMalloc", ctypes.byref(scratch), size)
            self._scratch = scratch
        filled_size = ctypes.c_size_t(int(share * self._l2_bytes))
        self._call("cudaMemsetAsync", self._scratch, 0, filled_size, _STREAM)

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._runtime, function)(*arguments)
        if code:
            name = self._runtime.cudaGetErrorName
            name.restype = ctypes.c_char_p
            # The same words as those of TVM's macro TVM_FFI_CHECK_CUDA_ERROR.
            raise RuntimeError(f"CUDA Runtime Error: {name(code).decode()} ({code}): {function}")
