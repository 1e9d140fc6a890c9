"""Times of work on a GPU by CUDA events, and a way to empty its L2 cache between two runs.

TVM's own timer of CUDA uses events, too, but cannot be started and stopped from Python; and `time_evaluator`
makes the host wait between the flush of the cache and the run, so that it would time the launch as well.
All functions work on the default stream, which is TVM's unless it captures a graph.
"""

import ctypes
from typing import Any, Final

import tvm

# The L2 cache of some GPUs has two halves, each of which may hold the same line.
FLUSH_SHARE: Final = 2.0
_DEFAULT_STREAM: Final = ctypes.c_void_p(None)


class CudaClock:
    """Marks moments in a GPU's queue of work; the host waits only in `wait`."""

    def __init__(self, runtime: Any, l2_bytes: int) -> None:
        """`runtime` is the CUDA runtime library, as ctypes loads it."""
        self._runtime = runtime
        self._l2_bytes = l2_bytes
        self._scratch: ctypes.c_void_p | None = None
        self._events: list[ctypes.c_void_p] = []
        self._marks = 0

    @classmethod
    def of_device(cls) -> "CudaClock":
        """Return the clock of the first GPU. TVM's CUDA runtime has loaded the library for the process."""
        device = tvm.runtime.device("cuda", 0)
        return cls(ctypes.CDLL(None), int(device.l2_cache_size_bytes or 0))

    def mark(self) -> int:
        """Put a mark behind the work that is queued so far, and return its number for `seconds`."""
        if self._marks == len(self._events):
            event = ctypes.c_void_p()
            self._call("cudaEventCreate", ctypes.byref(event))
            self._events.append(event)
        self._call("cudaEventRecord", self._events[self._marks], _DEFAULT_STREAM)
        self._marks += 1
        return self._marks - 1

    def wait(self) -> None:
        """Wait for all queued work. Raises RuntimeError for an error of that work."""
        self._call("cudaStreamSynchronize", _DEFAULT_STREAM)

    def seconds(self, begin: int, end: int) -> float:
        """Return the seconds between two marks; call `wait` first."""
        elapsed_ms = ctypes.c_float()
        events = self._events[begin], self._events[end]
        self._call("cudaEventElapsedTime", ctypes.byref(elapsed_ms), *events)
        return elapsed_ms.value / 1e3

    def forget(self) -> None:
        """Reuse the events of all marks for new marks."""
        self._marks = 0

    def fill(self, share: float = FLUSH_SHARE) -> None:
        """Queue a fill of as much memory as this share of the L2 cache; the default empties the cache."""
        if self._scratch is None:
            self._scratch = ctypes.c_void_p()
            whole = ctypes.c_size_t(int(FLUSH_SHARE * self._l2_bytes))
            self._call("cudaMalloc", ctypes.byref(self._scratch), whole)
        part = ctypes.c_size_t(int(share * self._l2_bytes))
        self._call("cudaMemsetAsync", self._scratch, 0, part, _DEFAULT_STREAM)

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._runtime, function)(*arguments)
        if code:
            name = self._runtime.cudaGetErrorName
            name.restype = ctypes.c_char_p
            # The words of TVM's own macro, TVM_FFI_CHECK_CUDA_ERROR.
            raise RuntimeError(f"CUDA Runtime Error: {name(code).decode()} ({code}): {function}")
