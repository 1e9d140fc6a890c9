"""Who may win a task: its fastest candidates, or a sane default where nothing was measured."""

from collections.abc import Sequence
from dataclasses import dataclass
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
        candidates = _defaults(claimed, program, descriptors_of(workload))
    slots = tuple(Slot(number, *candidate) for number, candidate in enumerate(candidates))
    return Contest(task, workload, program, slots)


def _defaults(
    claimed: Stage, program: Program, descriptors: tuple[float, ...]
) -> list[tuple[Candidate, Sketch]]:
    compiler = claimed.runtime.compiler
    sketches = load_sketches(compiler, program, claimed.target)
    space = TvmSpace(sketches, program, claimed.target, descriptors, compiler)
    defaults = space.defaults()
    valid = [candidate for candidate, good in zip(defaults, space.valid(defaults), strict=True) if good]
    return [(candidate, space.by_key[candidate.sketch]) for candidate in valid[:TOP]]
