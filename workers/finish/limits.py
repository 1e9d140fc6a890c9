"""How near the tuned model comes to what this machine computes at most."""

from collections.abc import Sequence

from mallorn.core.values.report import FinishReport, Limits
from workers.finish.contenders import Contest
from workers.probing.run import known_machine
from workers.racing.engines import TUNED
from workers.slot.stage import Stage


def limits(claimed: Stage, tasks: Sequence[Contest], timed: FinishReport) -> FinishReport:
    """The limits' part of the report, where the tuned model was timed.

    Without the peak where nobody has measured it, and where the host was busy: what others took of it would
    make us look far.
    """
    latency = timed.latency_us.get(TUNED)
    if latency is None:
        return FinishReport()
    flop = sum(task.workload.flops * task.task.weight for task in tasks)
    machine = known_machine(claimed.runtime, claimed.job.id)
    if machine is None or not timed.steady:
        return FinishReport(limits=Limits(flop=flop))
    peak_gflops = machine.gflops.get("float32", machine.core_gflops)
    return FinishReport(limits=share_of_peak(flop, latency.median, peak_gflops, claimed.options.precision))


def share_of_peak(flop: float, tuned_us: float, peak_gflops: float, precision: str) -> Limits:
    """The operations of one run beside the peak, which is float32's: it says nothing of narrower types."""
    if precision != "float32":
        return Limits(flop=flop, peak_gflops=peak_gflops)
    gflops = flop / tuned_us / 1e3
    peak_gflops = max(peak_gflops, gflops)  # no measured peak can be below what was reached
    return Limits(flop=flop, peak_gflops=peak_gflops, peak_share=gflops / peak_gflops)
