"""Conditions of a job's timings: how quiet the hosts were, and the machine's peak beside the model's time."""

from collections.abc import Sequence
from typing import Final

from db.repositories.rounds import Rounds
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.finish_report import Conditions, FinishReport, Limits
from workers.finish.contenders import Contest
from workers.finish.winners import Winner
from workers.hardware_probe.run import known_machine
from workers.process.leased_stage import StageContext
from workers.whole_model.engines import TUNED

# Of a job's candidates: so many mere bounds do not hide the good ones.
FEW: Final = 0.05


def conditions(claimed: StageContext, report: FinishReport, winners: Sequence[Winner]) -> FinishReport:
    """The report's conditions, with those of the trials and winners; none of a job that timed nothing."""
    with claimed.runtime.database.session() as session:
        parts = [stats.disturbance for stats in Rounds(session).stats(claimed.job.id)]
    trials = Disturbance.of_all(part for part in parts if part is not None)
    model = report.conditions
    bounds = sum(winner.trial.is_bound for winner in winners)
    if not trials.timed and not bounds:
        return FinishReport(conditions=model) if model else FinishReport()
    steady = trials.bounds <= FEW * trials.timed
    told = [model.note] if model and model.note else []
    if trials.words:
        told += f"While candidates were timed, {trials.words}.", *filter(None, [trials.hint])
    if bounds:
        told.append(f"The times of {bounds} of {len(winners)} winners are only upper bounds.")
    steady = steady and not bounds and (model is None or model.steady)
    both = Conditions(steady=steady, note=" ".join(told), trials=trials if trials.timed else None)
    return FinishReport(conditions=both)


def limits(claimed: StageContext, tasks: Sequence[Contest], timed: FinishReport) -> FinishReport:
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
