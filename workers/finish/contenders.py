"""Who may win a task: its fastest candidates, or sane defaults where those are missing or fail."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from db.repositories.sketches import Sketches
from db.repositories.tasks import Tasks
from db.repositories.trials import StoredTrial, Trials
from db.repositories.workloads import Workloads
from db.tables import Task, Workload
from workers.measure.base import Program, Slot
from workers.round_context import descriptors_of, program_of
from workers.search.space import Candidate, Sketch
from workers.stage import Stage
from workers.stored import sketch_of
from workers.tvm.space import TvmSpace, load_sketches

TOP: Final = 3


@dataclass(frozen=True, slots=True)
class Contest:
    """A task and the candidates that are measured once more for it, the likeliest winner first."""

    task: Task
    workload: Workload
    program: Program
    slots: tuple[Slot, ...]


def contests(claimed: Stage) -> list[Contest]:
    """One contest for every task of the job."""
    job = claimed.job
    with claimed.runtime.database.session() as session:
        tasks = Tasks(session).list(job.id)
        workloads = {row.id: row for row in Workloads(session).get_many([t.workload_id for t in tasks])}
        best = {
            task.id: Trials(session).best(task.workload_id, job.target_id, TOP, job.context_id)
            for task in tasks
        }
        keys = {trial.sketch for trials in best.values() for trial in trials}
        sketches = {row.key: sketch_of(row) for row in Sketches(session).get_many(keys)}
    return [_contest(claimed, task, workloads[task.workload_id], best[task.id], sketches) for task in tasks]


def second_chance(claimed: Stage, lost: Contest) -> Contest | None:
    """The defaults that the lost contest did not hold; None when there are no others."""
    known = {slot.candidate for slot in lost.slots}
    defaults = _defaults(claimed, lost.program, descriptors_of(lost.workload))
    others = [default for default in defaults if default[0] not in known][:TOP]
    return replace(lost, slots=_number(others)) if others else None


def _contest(
    claimed: Stage,
    task: Task,
    workload: Workload,
    best: Sequence[StoredTrial],
    sketches: dict[str, Sketch],
) -> Contest:
    program = program_of(workload)
    candidates = [(Candidate(row.sketch, row.decisions), sketches[row.sketch]) for row in best]
    if not candidates:
        candidates = _defaults(claimed, program, descriptors_of(workload))[:TOP]
    return Contest(task, workload, program, _number(candidates))


def _number(candidates: Sequence[tuple[Candidate, Sketch]]) -> tuple[Slot, ...]:
    return tuple(Slot(number, *candidate) for number, candidate in enumerate(candidates))


def _defaults(
    claimed: Stage, program: Program, descriptors: tuple[float, ...]
) -> list[tuple[Candidate, Sketch]]:
    compiler = claimed.runtime.compiler
    sketches = load_sketches(compiler, program, claimed.target)
    space = TvmSpace(sketches, program, claimed.target, descriptors, compiler)
    defaults = space.defaults()
    valid = [candidate for candidate, good in zip(defaults, space.valid(defaults), strict=True) if good]
    return [(candidate, space.by_key[candidate.sketch]) for candidate in valid]
