"""How near the tuned model comes to what this machine computes at most."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from mallorn.core.values.report import FinishReport, Limits
from workers.finish.contenders import Contest
from workers.finish.job_model import JobModel
from workers.finish.undone import Undone
from workers.racing.engines import TUNED

MEASURE: Final = "measure what this machine computes at most"


def limits(model: JobModel, tasks: Sequence[Contest], timed: FinishReport, undone: Undone) -> FinishReport:
    """The limits' part of the report, where the tuned model was timed.

    Without the peak where the host was busy: what others took of it would make us look near.
    """
    latency = timed.latency_us.get(TUNED)
    if latency is None:
        return FinishReport()
    flop = sum(task.workload.flops * task.task.weight for task in tasks)
    peak_gflops = undone.attempt(MEASURE, partial(_peak_gflops, model)) if timed.steady else None
    if peak_gflops is None:
        return FinishReport(limits=Limits(flop=flop))
    precision = model.claimed.options.precision
    return FinishReport(limits=share_of_peak(flop, latency.median, peak_gflops, precision))


def share_of_peak(flop: float, tuned_us: float, peak_gflops: float, precision: str) -> Limits:
    """The operations of one run beside the peak, which is float32's: it says nothing of narrower types."""
    if precision != "float32":
        return Limits(flop=flop, peak_gflops=peak_gflops)
    gflops = flop / tuned_us / 1e3
    peak_gflops = max(peak_gflops, gflops)  # no measured peak can be below what was reached
    return Limits(flop=flop, peak_gflops=peak_gflops, peak_share=gflops / peak_gflops)


def _peak_gflops(model: JobModel) -> float:
    """Measured here and now, in a second or two."""
    target = model.claimed.target
    with model.whole.peak() as peak:
        peak.start()
        with model.alone():
            return peak.peak_gflops(target.text, target.num_cores)
