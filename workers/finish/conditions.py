"""How quiet the hosts were while a job's candidates were timed, and its whole model."""

from typing import Final

from db.repositories.rounds import Rounds
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.report import Conditions, FinishReport
from workers.slot.stage import Stage

# Of a job's candidates: so many mere bounds do not hide the good ones.
FEW: Final = 0.05


def conditions(claimed: Stage, report: FinishReport) -> FinishReport:
    """The report's conditions, with those of the trials; none of a job that timed nothing."""
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
    both = Conditions(steady=steady and (model is None or model.steady), note=" ".join(told), trials=trials)
    return FinishReport(conditions=both)
