"""A version of the schedules for busy hosts, on which other kernels may be fastest.

After VELTAIR. Every task's likeliest candidates are compiled into the model, and each kernel
is timed inside the model while one load program per core computes and streams memory. Then the
model with the winners under load and the model with the winners on an idle host are both
timed, from no load to full load.
"""

import shutil
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from db.repositories.jobs import Jobs
from db.repositories.measurements import Measurements, NewMeasurement
from db.repositories.measuring_contexts import Contexts
from mallorn.core.outcomes import Outcome
from mallorn.core.values.finish_report import BesidePrograms, Contention, FinishReport
from mallorn.core.values.manifest import DATABASE, Version
from mallorn.core.values.trial import Trial
from workers.finish.contenders import timing_inside
from workers.finish.decide_inside_model import Times, choose, fields, swapped, verified
from workers.finish.final_schedules import FinalSchedules
from workers.finish.job_model import JobModel, TunedModel, be_here
from workers.finish.numeric_checker import Checker
from workers.finish.step_log import StepLog
from workers.finish.winners import Winner
from workers.round.store_referenced_rows import store_sketches

# Least relative gain that counts: under load, two timings of the same kernel differ more.
WORTH: Final = 0.05
ORIGIN: Final = "beside"
ALONE, LOADED = Version.ALONE.value, Version.LOADED.value
STEP: Final = "choose schedules for a busy machine"
SAYS: Final = "schedules are timed beside other programs"


def beside_others(
    model: JobModel, winners: Sequence[Winner], handout: FinalSchedules, check: Checker, undone: StepLog
) -> FinishReport:
    """Return the report section on busy hosts; empty if not asked for or if a step failed.

    If the version for busy hosts is faster at some load, copy its records into the export.
    """
    built = handout.built
    if not model.claimed.options.beside_others or built is None:
        return FinishReport()
    if model.claimed.graph.dynamic is not None:
        undone.leave(STEP, "a job for a range of shapes has one version", "mallorn tune MODEL --contention")
        return FinishReport()
    if built.is_large:
        undone.leave(STEP, "this host's memory does not hold several of so large a model", "free -g")
        return FinishReport()
    if not undone.attempt(STEP, partial(be_here, model)):
        return FinishReport()
    found = undone.attempt(STEP, partial(_versions, model, winners, built, check))
    return FinishReport(contention=found) if found else FinishReport()


def _versions(model: JobModel, winners: Sequence[Winner], first: TunedModel, check: Checker) -> Contention:
    started = time.monotonic()
    with model.claimed.runtime.database.transaction() as session:
        Jobs(session).set_reason(model.claimed.job.id, SAYS)
    most = model.claimed.target.num_cores
    winner_of = {winner.contest.task.name: winner for winner in winners}
    others = fields(first.winners, [_others(w, winner_of[w.contest.task.name]) for w in first.winners])
    builds = [first, *(model.build(f"versions-{n}", field) for n, field in enumerate(others, 1))]
    times = model.kernel_times(builds, most) if others else [{}]
    rows = [build.winners for build in builds]
    _store(model, rows, times)
    chosen = verified(first.winners, choose(rows, times, WORTH), check)
    swaps = swapped(first.winners, chosen, rows, times)
    candidates = {ALONE: first} | ({LOADED: model.build(LOADED, chosen)} if swaps else {})
    timed: list[BesidePrograms] = []
    for programs in loads(most):
        us = model.latencies(candidates, programs)
        timed.append(BesidePrograms(programs=programs, alone_us=us[ALONE], loaded_us=us.get(LOADED)))
    wins_from = crossover(timed)
    if wins_from is not None:
        for name in DATABASE:
            shutil.copyfile(candidates[LOADED].directory / name, first.directory / Version.LOADED.file(name))
    seconds = round(time.monotonic() - started, 1)
    return Contention(tasks=swaps, loads=timed, wins_from=wins_from, seconds=seconds)


def loads(most: int) -> list[int]:
    """Return the numbers of load programs to time the model with: 0, 1, most // 2 and `most`."""
    return sorted({0, 1, most // 2, most})


def crossover(timed: Sequence[BesidePrograms]) -> int | None:
    """Return the number of programs from which on the version for busy hosts is clearly faster.

    None if it is not clearly faster at the highest load.
    """
    found = None
    for each in reversed(timed):
        if each.loaded_us is None or each.loaded_us > each.alone_us * (1 - WORTH):
            break
        found = each.programs
    return found


def _others(chosen: Winner, task_winner: Winner) -> list[Winner]:
    """Return the other candidates that may win under load, the task's first winner included."""
    found = {each.slot: each for each in (task_winner, *task_winner.rivals, *task_winner.versions)}
    return [each for slot, each in found.items() if slot != chosen.slot]


def _store(model: JobModel, rows: Sequence[Sequence[Winner]], times: Sequence[Times]) -> None:
    """Store the times in a measuring context of their own, for later contests of the tasks."""
    claimed = model.claimed
    with claimed.runtime.database.transaction() as session:
        context_id, contexts = Jobs(session).get(claimed.job.id, None).context_id, Contexts(session)
        if context_id is None:
            return
        timing = timing_inside(claimed, claimed.target.num_cores)
        beside = contexts.ensure_timed_as(contexts.get(context_id), timing).id
        for index in range(len(rows[0])):
            timings = {row[index].slot: (row[index], us) for row, us in zip(rows, times, strict=True)}
            first = rows[0][index]
            sketches = store_sketches(session, [slot.sketch for slot in first.contest.slots])
            task = first.contest.task
            new: list[NewMeasurement] = []
            for winner, us in timings.values():
                if us.get(task.name):
                    candidate = winner.contest.slots[winner.slot].candidate
                    run_us = (us[task.name] / task.weight,)  # of one call
                    trial = Trial(candidate, Outcome.OK, origin=f"{ORIGIN}:{winner.means}", run_us=run_us)
                    new.append(NewMeasurement(winner.slot, trial, sketches[candidate.sketch], beside))
            owner = claimed.job.id, claimed.hold.token, first.contest.workload.id, claimed.job.target_id
            Measurements(session).add_finish(*owner, new)
