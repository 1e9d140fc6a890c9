"""The finish of a job that measures nothing: earlier results or models provide the schedules."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from db.repositories.tasks import Tasks
from db.tables import Task, Workload
from mallorn.core.errors import Unschedulable
from mallorn.core.outcomes import Outcome
from mallorn.core.values.finish_report import Answered
from mallorn.core.values.trial import Trial
from searchers.roller.rank_candidates import modelled_us
from workers.finish.contenders import Contest, space_of
from workers.finish.numeric_checker import Checker
from workers.finish.winners import Winner
from workers.measure.base import MeasureInput
from workers.process.leased_stage import StageContext
from workers.round.round_context import program_of
from workers.tvm.tvm_space import TvmSpace
from workers.zero_shot.answer_source import AnswerSource, ZeroShotAnswer, ZeroShotQuery, in_order
from workers.zero_shot.measured_workloads import SameWorkload, SimilarWorkload
from workers.zero_shot.roller_and_cost_models import FromRoller, RankedByMachine, RankedByModel

TRIED: Final = 8  # answers tried per task, until one compiles and passes the check
SOURCES: Final[dict[str, Sequence[AnswerSource]]] = {
    "zero-shot": (
        SameWorkload(),
        SimilarWorkload(),
        RankedByModel((SimilarWorkload(), FromRoller())),
        FromRoller(),
    ),
    "one-shot": (
        SameWorkload(),
        RankedByModel((SimilarWorkload(), FromRoller())),
        SimilarWorkload(),
        FromRoller(),
    ),
}


def answer(stage: StageContext, check: Checker) -> tuple[list[tuple[Winner, Answered]], list[Contest]]:
    """Return the winners with their report entries, and the contests of tasks without a winner.

    A task's winner is its first answer that passes the checker.
    """
    answered: list[tuple[Winner, Answered]] = []
    losers: list[Contest] = []
    with stage.runtime.database.session() as session:
        tasks = Tasks(session).programs(stage.job.id)
    for task, workload in tasks:
        stage.lease.check()
        found = _answered(stage, task, workload, check)
        if found is None:
            losers.append(Contest(task, workload, program_of(workload), ()))
        else:
            answered.append(found)
    return answered, losers


def _answered(
    stage: StageContext, task: Task, workload: Workload, check: Checker
) -> tuple[Winner, Answered] | None:
    program = program_of(workload)
    try:
        space = space_of(stage, workload)
    except Unschedulable:  # the task gets no schedule
        return None
    for each in _answers(stage, workload, space):
        slot = MeasureInput(0, each.candidate, each.sketch or space.by_key[each.candidate.sketch])
        verdict = check.verify(program, slot)
        if verdict.ok:
            contest = Contest(task, workload, program, (slot,), (), {each.candidate: each.source})
            machine = space.machine
            peak_us = workload.flops / (machine.core_gflops * machine.cores * 1e3)
            expected_us = each.expected_us or modelled_us(space, each.candidate) or peak_us
            untimed = Trial(each.candidate, Outcome.OK, origin=each.source)
            winner = Winner(contest, 0, untimed, verdict.trace, verdict.max_error, expected_us=expected_us)
            answered = Answered(
                source=each.source,
                because=each.because,
                sure=each.sure,
                expected_us=each.expected_us,
                checked=winner.is_checked,
            )
            return winner, answered
    return None


def _answers(stage: StageContext, workload: Workload, space: TvmSpace) -> Iterator[ZeroShotAnswer]:
    job = stage.job
    question = ZeroShotQuery(job.owner, workload, stage.target, job.target_id, job.context_id, space)

    def ask(source: AnswerSource) -> Sequence[ZeroShotAnswer]:
        with stage.runtime.database.session() as session:
            return list(islice(source(session, question), TRIED))

    *others, last = SOURCES[stage.options.mode]
    modelled = RankedByMachine(stage.options.cost_model, stage.options.search)
    return islice(in_order((*others, modelled, last), ask), TRIED)
