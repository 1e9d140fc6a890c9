"""Times a function of a library in slices, and says of each how long others kept it from its processors."""

import os
import time
from collections.abc import Sequence
from functools import cached_property
from statistics import fmean
from typing import Final

import tvm
from tvm.runtime import Module

from workers.device.cuda_clock import CudaClock
from workers.device.gpu_meter import GpuLoad, GpuMeter
from workers.device.slice_timing_result import Slice, SliceTimes
from workers.host.load_meter import LoadMeter
from workers.host.processor_contention import ContentionReading

#: The function that TVM calls before every slice.
NEXT_SLICE: Final = "mallorn.next_slice"
# Slices that are shorter than this are looked at together: a look takes microseconds.
LOOK_SEC: Final = 0.002
SET_BACK: Final = 0.5  # of what a clock says that cannot be set, without the calls between slices
CALL_SEC: Final = 2e-5
STOLEN: Final = 0.05  # of the processors' time: it is counted in hundredths of a second


class SliceTimer:
    """The timer of a session, on its device: what disturbs a timing is known there alone."""

    def __init__(self, on_cores: bool, has_priority: bool, gpu: GpuMeter | None = None) -> None:
        self._on_cores = on_cores
        self._gpu = gpu
        self._raised = has_priority
        self._meter = LoadMeter(lambda: ())
        self._begun = 0
        self._looks: list[tuple[int, ContentionReading]] = []

    def next_slice(self, *_args: object) -> None:
        """Called by TVM where a slice begins."""
        if not self._looks or time.monotonic() - self._looks[-1][1].clock_sec >= LOOK_SEC:
            self._looks.append((self._begun, ContentionReading.look()))
        self._begun += 1

    def times(
        self, library: Module, function: str, kind: str, number: int, repeat: int, *tensors: object
    ) -> SliceTimes:
        """`repeat` slices of `number` runs each, after one run that does not count."""
        self._begun, self._looks = 0, []
        self._meter.look()
        device = tvm.device(kind, 0)
        timer = library.time_evaluator(function, device, number=number, repeat=repeat, f_preproc=NEXT_SLICE)
        seconds = timer(*tensors).results
        self._looks.append((repeat, ContentionReading.look()))
        return self._report(seconds, self._disturbed([number * each_sec for each_sec in seconds]))

    def cold_times(
        self, library: Module, function: str, kind: str, number: int, repeat: int, *tensors: object
    ) -> SliceTimes:
        """Return the times of the same runs on a GPU, each of which finds nothing in the L2 cache."""
        self._begun, self._looks = 0, []
        clock, run = self._gpu_clock, library[function]
        run(*tensors)
        seconds = []
        for _ in range(repeat):
            self.next_slice()
            clock.begin_run()
            marks = []
            for _ in range(number):
                clock.fill()
                begin = clock.mark()
                run(*tensors)
                marks.append((begin, clock.mark()))
            clock.end_run()
            seconds.append(fmean(clock.seconds(*pair) for pair in marks))
        return self._report(seconds, [None] * repeat)

    @cached_property
    def _gpu_clock(self) -> CudaClock:
        return CudaClock.of_device()

    def _report(self, seconds: Sequence[float], shares: Sequence[float | None]) -> SliceTimes:
        gpu = self._gpu.look() if self._gpu is not None else GpuLoad(None)
        if not self._on_cores:
            shares = [gpu.share] * len(seconds)
        return SliceTimes(
            slices=tuple(map(Slice, seconds, shares)),
            cores=os.cpu_count() or 1,
            rivals=fmean(look.rivals for _, look in self._looks),
            raised=self._raised,
            gpu=gpu.words,
        )

    def _disturbed(self, told_sec: Sequence[float]) -> list[float | None]:
        """The share of each slice that its slowest thread waited, or another virtual machine had.

        TVM's timer of CPUs is the wall clock: where that was set meanwhile, nothing of a slice is true.
        A GPU is timed by its own events.
        """
        shares: list[float | None] = []
        stolen_share = self._meter.look().stolen
        for (begin, first), (end, second) in zip(self._looks, self._looks[1:], strict=False):
            waited = second.waited_since(first) if self._on_cores else None
            if waited is not None and stolen_share > STOLEN:
                waited = max(waited, stolen_share)
            took_sec = second.clock_sec - first.clock_sec - CALL_SEC * (end - begin)
            if self._on_cores and sum(told_sec[begin:end]) < SET_BACK * took_sec - LOOK_SEC:
                waited = 1.0
            shares += [waited] * (end - begin)
        return shares
