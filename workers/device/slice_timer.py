"""Times a library's function in slices (series of runs), and how much each is disturbed."""

import os
import time
from collections.abc import Sequence
from functools import cached_property
from statistics import fmean
from typing import Final

import tvm
from tvm.runtime import Module

from mallorn.workers.device.device_kind import AcceleratorLoad, AcceleratorMeter, CacheClock, DeviceKind
from mallorn.workers.device.slice_timing_result import Slice, SliceTimes
from mallorn.workers.host.load_meter import ContentionReading, LoadMeter

#: The function that TVM calls before every slice.
NEXT_SLICE: Final = "mallorn.next_slice"
# Counters are read at most this often, since reading them takes microseconds.
LOOK_SEC: Final = 0.002
SET_BACK: Final = 0.5  # below this share of the monotonic time, the wall clock was set back
CALL_SEC: Final = 2e-5
STOLEN: Final = 0.05  # share of CPU time; smaller ones are noise, as the kernel counts 10 ms ticks


class SliceTimer:
    """Times slices (short series of runs) inside the device's session, where it can observe
    how other programs disturb them."""

    def __init__(
        self,
        on_cores: bool,
        has_priority: bool,
        accelerator: AcceleratorMeter | None = None,
        kind: DeviceKind | None = None,
    ) -> None:
        self._kind = kind or DeviceKind()
        self._on_cores = on_cores
        self._accelerator = accelerator
        self._raised = has_priority
        self._meter = LoadMeter(lambda: ())
        self._begun = 0
        self._looks: list[tuple[int, ContentionReading]] = []

    def count_slice(self, *_args: object) -> None:
        """Count a slice (a series of runs), and read the competition for CPUs unless that
        was done recently. TVM calls this before each slice."""
        if not self._looks or time.monotonic() - self._looks[-1][1].clock_sec >= LOOK_SEC:
            self._looks.append((self._begun, ContentionReading.read_counters()))
        self._begun += 1

    def time_slices(
        self, library: Module, function: str, kind: str, number: int, repeat: int, *tensors: object
    ) -> SliceTimes:
        """Time `repeat` slices of `number` runs each, after one run that does not count."""
        self._begun, self._looks = 0, []
        self._meter.read_load()
        device = tvm.device(kind, 0)
        timer = library.time_evaluator(function, device, number=number, repeat=repeat, f_preproc=NEXT_SLICE)
        seconds = timer(*tensors).results
        self._looks.append((repeat, ContentionReading.read_counters()))

        # The share of each slice that its slowest thread waited, or another virtual machine had.
        shares: list[float | None] = []
        stolen_share = self._meter.read_load().stolen
        for (begin, first), (end, second) in zip(self._looks, self._looks[1:], strict=False):
            waited = second.waited_since(first) if self._on_cores else None
            if waited is not None and stolen_share > STOLEN:
                waited = max(waited, stolen_share)
            # TVM times CPUs by the wall clock: if that was set meanwhile, the slices are
            # useless. GPUs are timed by their own events.
            took_sec = second.clock_sec - first.clock_sec - CALL_SEC * (end - begin)
            reported_sec = number * sum(seconds[begin:end])
            if self._on_cores and reported_sec < SET_BACK * took_sec - LOOK_SEC:
                waited = 1.0
            shares += [waited] * (end - begin)
        return self._summarize_slices(seconds, shares)

    def time_cold_slices(
        self, library: Module, function: str, kind: str, number: int, repeat: int, *tensors: object
    ) -> SliceTimes:
        """Time slices as `times` does, but on an accelerator, with an empty cache per run."""
        self._begun, self._looks = 0, []
        clock, run = self._cache_clock, library[function]
        run(*tensors)
        seconds = []
        for _ in range(repeat):
            self.count_slice()
            clock.begin_run()
            marks = []
            for _ in range(number):
                clock.queue_memory_fill()
                begin = clock.record_mark()
                run(*tensors)
                marks.append((begin, clock.record_mark()))
            clock.end_run()
            seconds.append(fmean(clock.seconds_between(*pair) for pair in marks))
        return self._summarize_slices(seconds, [None] * repeat)

    @cached_property
    def _cache_clock(self) -> CacheClock:
        clock = self._kind.cache_clock()
        if clock is None:
            raise RuntimeError("this device's cache cannot be emptied")
        return clock

    def _summarize_slices(self, seconds: Sequence[float], shares: Sequence[float | None]) -> SliceTimes:
        accelerator = self._accelerator
        lost = AcceleratorLoad(None) if accelerator is None else accelerator.read_load()
        if not self._on_cores:
            shares = [lost.share] * len(seconds)
        return SliceTimes(
            slices=tuple(map(Slice, seconds, shares)),
            cores=os.cpu_count() or 1,
            rivals=fmean(look.rivals for _, look in self._looks),
            raised=self._raised,
            gpu=lost.words,
        )
