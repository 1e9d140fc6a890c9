"""Times a library on a device by a stopping rule, in the moments in which the device's host lets it."""

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.trial import is_disturbed
from workers.device.slice_timing_result import SliceTimes
from workers.interfaces.tensor_arguments import Arguments
from workers.measure.stopping import StoppingRule, take_times
from workers.measure.stopping.incremental_timing import ENOUGH, Patience, Piece, take_timing

if TYPE_CHECKING:
    from workers.tvm.remote_device import RemoteDevice

# A rough idea of the time a run takes, for a twentieth of what the timing itself costs.
ROUGH_MS: Final = 5
SEC_US: Final = 1e6


class LibraryTimer:
    """One timing of one library. What it took is known afterwards, also of one that failed."""

    def __init__(self, device: "RemoteDevice", patience_sec: float, cold: bool = False) -> None:
        self._device = device
        self._cold = cold
        self._tensors: list[Any] = []
        self._patience = Patience(patience_sec)
        self._means: list[Piece] = []
        self._told: list[SliceTimes] = []

    def fill(self, args: Arguments) -> None:
        """Make what the library is called with. Raises what `RemoteDevice.run` does."""
        self._tensors = self._device.random_args(args)

    def times_us(
        self, library: Any, rule: StoppingRule, evaluator: EvaluatorOptions, best_us: float | None
    ) -> list[float]:
        """The run times that count."""

        def time_once(options: EvaluatorOptions) -> list[float]:
            means = take_timing(options, rough_sec, partial(self._pieces, library), self._patience)
            self._means += means
            return [mean.mean_sec * SEC_US for mean in means]

        timer = self._device.timer(library, number=1, repeat=1, min_repeat_ms=ROUGH_MS)
        rough_sec = min(timer(*self._tensors))
        take_times(rule, evaluator, time_once, best_us)
        return [mean.mean_sec * SEC_US for mean in self._counting()]

    @property
    def share(self) -> float | None:
        """Of the times that count: in which others had the processors."""
        shares = [mean.disturbed for mean in self._counting() if mean.disturbed is not None]
        return fmean(shares) if shares else None

    @property
    def disturbance(self) -> Disturbance:
        """What others had of the device's host meanwhile."""
        return Disturbance(
            timed=1,
            bounds=int(is_disturbed(self.share)),
            kept_sec=sum(mean.sec for mean in self._means),
            lost_sec=self._patience.lost_sec,
            rivals=fmean(told.rivals for told in self._told) if self._told else 0.0,
            cores=max((told.cores for told in self._told), default=0),
            raised=all(told.raised for told in self._told),
            gpu=next((words for told in self._told for words in told.gpu), ""),
        )

    def _counting(self) -> Sequence[Piece]:
        """Those that were not disturbed, where they are enough."""
        quiet = [mean for mean in self._means if not is_disturbed(mean.disturbed)]
        return quiet if len(quiet) >= ENOUGH * len(self._means) else self._means

    def _pieces(self, library: Any, number: int, count: int) -> list[Piece]:
        told = self._device.time_slices(library, number, count, self._tensors, cold=self._cold)
        self._told.append(told)
        return [Piece(number, *each) for each in told.slices]
