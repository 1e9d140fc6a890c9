"""How quiet the hosts were while a job's candidates were timed, and its whole model."""

from collections.abc import Sequence
from typing import Final

from db.repositories.rounds import Rounds
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.report import Conditions, FinishReport
from workers.finish.winners import Winner
from workers.slot.stage import Stage

# Of a job's candidates: so many mere bounds do not hide the good ones.
FEW: Final = 0.05


def conditions(claimed: Stage, report: FinishReport, winners: Sequence[Winner]) -> FinishReport:
    """The report's conditions, with those of the trials and winners; none of a job that timed nothing."""
    with claimed.runtime.database.session() as session:
        parts = [stats.disturbance for stats in Rounds(session).stats(claimed.job.id)]
    trials = Disturbance.of_all(part for part in parts if part is not None)
    model = report.conditions
    if not trials.timed:
        return FinishReport(conditions=model) if model else FinishReport()
    steady = trials.bounds <= FEW * trials.timed
    told = [model.note] if model and model.note else []
    if trials.words:
        told += f"While candidates were timed, {trials.words}.", *filter(None, [trials.hint])
    if bounds := sum(winner.trial.is_bound for winner in winners):
        told.append(f"The times of {bounds} of {len(winners)} winners are only upper bounds.")
    steady = steady and not bounds and (model is None or model.steady)
    both = Conditions(steady=steady, note=" ".join(told), trials=trials)
    return FinishReport(conditions=both)
