"""What trials would win after a job without any: its kernels' times beside the machine's limit tell.

On the logarithmic scale trials close a share of what a guess leaves open to the limit: how large a one,
jobs of this measuring context tell by operator, beside EARLIER of all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import Final

import numpy as np

from db.repositories.jobs import Jobs
from mallorn.core.values.expected_gain import GapClosed, TuningGain
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.machine import Machine, limit_us
from workers.finish.winners import Winner
from workers.hardware_probe.run import known_machine
from workers.interfaces.tensor_arguments import unpack_arguments
from workers.process.leased_stage import StageContext
from workers.whole_model.engines import TUNED

# Of a network on a machine each: docs/results/tuning_gain.json, by `python -m benchmarks.tuning_gain`.
EARLIER: Final = tuple(GapClosed(open=gap, won=won) for gap, won in (
    (0.121, 0.016), (0.575, 0.408), (0.401, 0.029), (0.681, 0.174),
    (0.381, 0.06), (0.077, 0.001), (0.305, 0.064), (0.306, 0.034),
    (0.113, 0.021), (0.169, 0.011), (0.261, 0.0), (0.121, 0.076),
    (0.104, 0.019), (0.095, 0.009), (0.317, 0.153), (0.095, 0.017),
    (0.158, 0.009), (0.129, 0.013), (0.149, 0.044), (0.022, 0.003),
    (0.022, 0.016), (0.014, 0.01), (0.013, 0.006), (0.014, 0.014),
    (0.027, 0.018), (0.03, 0.006), (0.002, 0.001),
))  # fmt: skip
# The networks there got so many trials, ten a task or more; one took so long, its part of the job included.
TRIALS: Final = 1000
FEWEST: Final = 10
TRIAL_SEC: Final = 0.33
MISSED: Final = 0.1  # of what was seen lies on either side of the interval
NAMED: Final = 3  # tasks that win the most


@dataclass(frozen=True, slots=True)
class GuessedTask:
    """A task with a first guess, and what all its calls in a run take."""

    name: str
    us: float
    gap: GapClosed

    @classmethod
    def of(cls, winner: Winner, machine: Machine) -> "GuessedTask | None":
        """Return the task with what was handed out in the guess's place, timed in turn; None if untimed."""
        task, workload = winner.contest.task, winner.contest.workload
        guess_us, best_us = (winner.guess or winner).latency_us, winner.latency_us
        if guess_us is None or best_us is None:
            return None
        least_us = limit_us(machine, workload.flops, unpack_arguments(workload.args).args)
        gap = gap_closed(workload.op, guess_us, best_us, least_us)
        return cls(task.name, task.weight * guess_us, gap)

    def won_us(self, share: float) -> float:
        """If trials close so much of what is open."""
        return self.us * (1 - exp(-share * self.gap.open))


def what_trials_win(claimed: StageContext, winners: Sequence[Winner], timed: FinishReport) -> FinishReport:
    """The report's part: what trials closed or, after none, what they would win.

    Empty where tasks, model or machine were not timed, or that while others had it.
    """
    tuned, machine = timed.latency_us.get(TUNED), known_machine(claimed.runtime, claimed.job.id)
    if not (tuned and machine and winners and claimed.options.searches) or machine.disturbed:
        return FinishReport()
    tasks = [task for winner in winners if (task := GuessedTask.of(winner, machine)) is not None]
    if not tasks:
        return FinishReport()
    if claimed.job.trials != 0:
        return FinishReport(gaps=[task.gap for task in tasks])
    with claimed.runtime.database.session() as session:
        told = Jobs(session).reports(claimed.job.context_id)
    well = [report for report, _ in told if (report.trials or 0) >= FEWEST * len(report.gaps)]
    seen = [gap for report in well for gap in report.gaps]
    paces = [took_sec / report.trials for report, took_sec in told if report.trials]
    trial_sec = median(paces) if paces else TRIAL_SEC
    return FinishReport(tuning_gain=predict_tuning_gain(tasks, seen, tuned.median, trial_sec))


def gap_closed(op: str, guess_us: float, best_us: float, limit_us: float | None) -> GapClosed:
    """Nothing is open where the limit was beaten, which was none then, or is not known."""
    gap = log(guess_us / limit_us) if limit_us else 0.0
    return GapClosed(op=op, open=max(0.0, gap), won=max(0.0, log(guess_us / best_us)))


def predict_tuning_gain(
    tasks: Sequence[GuessedTask],
    seen: Sequence[GapClosed],
    whole_us: float,
    trial_sec: float = TRIAL_SEC,
    earlier: Sequence[GapClosed] = EARLIER,
) -> TuningGain:
    """`seen` are tasks of other jobs in this measuring context; `whole_us` is a run of the model.

    Errors of tasks are taken to be one network's, and not to cancel out.
    """
    ops = {task.gap.op for task in tasks}
    shares = {op: share_closed([*earlier, *(gap for gap in seen if gap.op == op)]) for op in ops}
    won_us = {task.name: [task.won_us(share) for share in shares[task.gap.op]] for task in tasks}
    total_us = max(whole_us, sum(task.us for task in tasks))
    low, gain, high = (sum(each) / total_us for each in zip(*won_us.values(), strict=True))
    most = sorted(tasks, key=lambda task: -won_us[task.name][1])[:NAMED]
    return TuningGain(
        gain=gain,
        low=low,
        high=high,
        trials=TRIALS,
        seconds=TRIALS * trial_sec,
        tasks=[task.name for task in most],
        unseen=sorted({task.gap.op for task in most} - {gap.op for gap in seen}),
    )


def share_closed(rows: Sequence[GapClosed]) -> tuple[float, float, float]:
    """The share that trials close between the ends of its interval.

    Rows count by what was open, so that the noise of small gaps does not; None open tells nothing.
    """
    known = sorted((row.share, row.open) for row in rows if row.open)
    shares, weights = zip(*known, strict=True)
    mean = float(np.average(shares, weights=weights))
    reached = np.cumsum(weights) / sum(weights)
    low, high = (shares[at] for at in np.searchsorted(reached, (MISSED, 1 - MISSED)))
    return min(low, mean), mean, max(high, mean)
