"""Order each task's candidates: by their times apart, by stored results and models, or by guesses.

Each function named ``order_by_`` returns every task's first choice, and its rivals in the
order in which a finish tries them inside the whole model.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Final, Self

from sqlalchemy.orm import Session

from mallorn.core.errors import MallornError, Unschedulable
from mallorn.core.outcomes import Outcome
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.event import CheckedEvent
from mallorn.core.values.finish_report import UnmeasuredSchedule
from mallorn.core.values.job import JobStep
from mallorn.core.values.trial import DecidedTask, DecidedWinner, KeptCandidate, Trial
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.job_progress import progress
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import FinishSteps
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.workloads import Sketches
from mallorn.db.tables import Task, Workload
from mallorn.searchers.roller.rank_candidates import modelled_us
from mallorn.workers.device.device_class import no_device_error
from mallorn.workers.finish.choose_winner import Winner, choose_winner
from mallorn.workers.finish.final_candidates import (
    Contest,
    derive_search_space,
    inside_timing_settings,
    select_final_candidates,
    select_replacement_candidates,
)
from mallorn.workers.finish.job_model import JobModel
from mallorn.workers.finish.numeric_check import Checker
from mallorn.workers.finish.step_log import StepLog
from mallorn.workers.host.code_digest import current_builder_name
from mallorn.workers.measure.measurer_interface import MeasureInput, Measurer, number_candidates
from mallorn.workers.measure.tracked_devices import of_class, runs_here
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.process.leased_work import LeasedStage
from mallorn.workers.process.time_slice import TimeSlice
from mallorn.workers.round.loaded_round import program_of
from mallorn.workers.round.store_referenced_rows import get_or_create_context
from mallorn.workers.zero_shot.answer_source import AnswerSource, ZeroShotAnswer, ZeroShotQuery, in_order
from mallorn.workers.zero_shot.measured_workloads import (
    propose_from_same_workload,
    propose_from_similar_workloads,
)
from mallorn.workers.zero_shot.roller_and_cost_models import (
    propose_from_roller,
    rank_by_pretrained_model,
    rank_by_untrained_model,
)


@dataclass(frozen=True, slots=True)
class Bench:
    """What a finish builds, times and checks schedules with: devices, or a batch's results."""

    model: JobModel
    measurer: Measurer
    checker: Checker
    step_log: StepLog

    @property
    def stage(self) -> LeasedStage:
        return self.model.stage


@dataclass(frozen=True, slots=True)
class TaskDecisions:
    """The first choices for a job's tasks, and the candidates of tasks without one."""

    winners: Sequence[Winner]
    losers: Sequence[Contest]
    answers: dict[str, UnmeasuredSchedule] = field(default_factory=dict)  # by task, for jobs without a search
    earlier_sec: float = 0.0  # seconds spent on decisions of earlier attempts
    stored_steps: int = 0  # tasks whose decision is stored for later attempts
    inside_context_id: int | None = None  # context of times inside the model, of guesses

    @property
    def contests(self) -> list[Contest]:
        return [*(winner.contest for winner in self.winners), *self.losers]


@dataclass(frozen=True, slots=True)
class Decision:
    """The final candidates of a task, its winner if any, and the seconds spent on both."""

    contest: Contest
    winner: Winner | None
    sec: float


@dataclass(frozen=True, slots=True)
class StoredDecisions:
    """Winners of tasks that earlier, interrupted attempts to finish this job stored."""

    stage: LeasedStage
    trials: int
    known: Mapping[int, DecidedTask]
    sketches: Mapping[str, Sketch]

    @classmethod
    def load_for_stage(cls, stage: LeasedStage) -> Self:
        """Load the winners that the same code chose after as many trials of the job."""
        with stage.runtime.database.session() as session:
            trials = progress(session, Jobs(session).get(stage.job.id, None)).spent
            steps = FinishSteps(session).read_decisions(stage.job.id, trials, _code_of(stage))
            keys = {candidate.sketch for step in steps.values() for candidate in step.candidates}
            return cls(stage, trials, steps, Sketches(session).by_key(keys))

    def find_decision(self, task: Task, workload: Workload) -> Decision | None:
        """Return a task's stored decision; None if it or one of its sketches is missing."""
        step = self.known.get(task.id)
        if step is None or any(candidate.sketch not in self.sketches for candidate in step.candidates):
            return None
        means = {Candidate(kept.sketch, kept.decisions): kept.means for kept in step.candidates}
        slots = number_candidates((candidate, self.sketches[candidate.sketch]) for candidate in means)
        guesses = () if step.guess is None else (Candidate(step.guess.sketch, step.guess.decisions),)
        contest = Contest(task, workload, program_of(workload), slots, guesses, means)
        winner = None if step.winner is None else _unpack_winner(step.winner, contest)
        return Decision(contest, winner, step.sec)

    def store_decision(self, session: Session, decision: Decision) -> None:
        """Store a decision. Raises LeaseLost if this worker no longer holds the lease."""
        contest, winner = decision.contest, decision.winner
        stored_winner = None if winner is None else DecidedWinner.model_validate(winner, from_attributes=True)
        step = DecidedTask(
            candidates=tuple(_pack(slot.candidate, contest) for slot in contest.slots),
            guess=next((_pack(guess, contest) for guess in contest.guesses), None),
            winner=stored_winner,
            sec=decision.sec,
            code=_code_of(self.stage),
        )
        FinishSteps(session).store(self.stage.hold, contest.task.id, self.trials, step)


def _code_of(stage: LeasedStage) -> str:
    return current_builder_name(stage.target.toolchain)


def _unpack_winner(winner: DecidedWinner, contest: Contest) -> Winner:
    rivals = tuple(_unpack_winner(rival, contest) for rival in winner.rivals)
    guess = None if winner.guess is None else _unpack_winner(winner.guess, contest)
    return Winner(contest, winner.slot, winner.trial, winner.trace, winner.max_error, rivals, guess)


def _pack(candidate: Candidate, contest: Contest) -> KeptCandidate:
    means = contest.means.get(candidate, "")
    return KeptCandidate(sketch=candidate.sketch, decisions=candidate.decisions, means=means)


def order_by_times(bench: Bench) -> TaskDecisions:
    """Choose each task's winner by times apart from the model, one task after the other;
    each choice is checked and stored before the next begins. Raises TimeSliceOver between
    two tasks if other jobs wait for this worker."""
    stage, measurer, checker = bench.stage, bench.measurer, bench.checker
    with stage.runtime.database.session() as session:
        tasks = Tasks(session).list_with_workloads(stage.job.id)
    steps, time_slice = StoredDecisions.load_for_stage(stage), TimeSlice(stage.runtime.database, stage.job.id)
    decisions: dict[int, Decision] = {}
    for task, workload in tasks:
        if (stored_decision := steps.find_decision(task, workload)) is not None:
            decisions[task.id] = stored_decision
    earlier_sec = sum(decision.sec for decision in decisions.values())
    undecided = [(task, workload) for task, workload in tasks if task.id not in decisions]
    for task, workload in undecided:
        contest = select_final_candidates(stage, task, workload)
        began_sec = time.monotonic()
        winner = choose_winner(stage, contest, measurer, checker)
        if winner is None and (next_contest := select_replacement_candidates(stage, contest)) is not None:
            winner = choose_winner(stage, next_contest, measurer, checker)
        final_contest = contest if winner is None else winner.contest
        decision = Decision(final_contest, winner, round(time.monotonic() - began_sec, 1))
        decisions[task.id] = decision
        step = JobStep(name="tasks are checked", done=len(decisions), total=len(tasks))
        latency_us = winner.latency_us if winner else None
        with stage.runtime.database.transaction() as session:
            steps.store_decision(session, decision)
            event = CheckedEvent(task=task.index, name=task.name, latency_us=latency_us)
            Events(session).append(task.job_id, event)
            Jobs(session).set_step(task.job_id, step)
        if len(decisions) < len(tasks):
            time_slice.raise_if_over()
    in_order = [decisions[task.id] for task, _ in tasks]
    winners = [decision.winner for decision in in_order if decision.winner is not None]
    losers = [decision.contest for decision in in_order if decision.winner is None]
    return TaskDecisions(winners, losers, earlier_sec=earlier_sec, stored_steps=len(tasks))


TRIED: Final = 8  # answers tried per task, until one compiles and passes the check
SOURCES: Final[dict[str, Sequence[AnswerSource]]] = {
    "zero-shot": (
        propose_from_same_workload,
        propose_from_similar_workloads,
        rank_by_pretrained_model,
        propose_from_roller,
    ),
    "one-shot": (
        propose_from_same_workload,
        rank_by_pretrained_model,
        propose_from_similar_workloads,
        propose_from_roller,
    ),
}


def order_by_answers(bench: Bench) -> TaskDecisions:
    """Choose each task's first untimed candidate, stored or modelled, that passes the check."""
    stage = bench.stage
    with stage.runtime.database.session() as session:
        tasks = Tasks(session).list_with_workloads(stage.job.id)
    winners: list[Winner] = []
    losers: list[Contest] = []
    answers: dict[str, UnmeasuredSchedule] = {}
    for task, workload in tasks:
        stage.lease.raise_if_lost()
        try:
            space = derive_search_space(stage, workload)
        except Unschedulable:  # the task gets no schedule
            losers.append(Contest(task, workload, program_of(workload), ()))
            continue
        for answer in _zero_shot_answers(stage, workload, space):
            program, candidate = program_of(workload), answer.candidate
            slot = MeasureInput(0, candidate, answer.sketch or space.by_key[candidate.sketch])
            verdict = bench.checker.verify(program, slot)
            if not verdict.has_passed:
                continue
            contest = Contest(task, workload, program, (slot,), (), {candidate: answer.source})
            peak_us = workload.flops / (space.machine.core_gflops * space.machine.cores * 1e3)
            expected_us = answer.expected_us or modelled_us(space, candidate) or peak_us
            trial = Trial(candidate, Outcome.OK, origin=answer.source)
            winner = Winner(contest, 0, trial, verdict.trace, verdict.max_error, expected_us=expected_us)
            winners.append(winner)
            answers[task.name] = UnmeasuredSchedule(
                source=answer.source,
                basis=answer.because,
                confidence=answer.sure,
                expected_us=answer.expected_us,
                is_verified=winner.is_checked,
            )
            break
        else:
            losers.append(Contest(task, workload, program_of(workload), ()))
    return TaskDecisions(winners, losers, answers)


def _zero_shot_answers(stage: LeasedStage, workload: Workload, space: TvmSpace) -> Iterator[ZeroShotAnswer]:
    options, query = stage.options, ZeroShotQuery(stage.job, workload, stage.target, space)

    def query_source(source: AnswerSource) -> Sequence[ZeroShotAnswer]:
        with stage.runtime.database.session() as session:
            return list(islice(source(session, query), TRIED))

    *first_sources, last = SOURCES[options.mode]
    modelled = partial(rank_by_untrained_model, cost_model=options.cost_model, search=options.search)
    return islice(in_order((*first_sources, modelled, last), query_source), TRIED)


def order_by_guesses(bench: Bench) -> TaskDecisions:
    """Take each task's likeliest first guess (a schedule that an analytic model proposes), or the
    fastest inside this model before. Its rivals are other guesses; none is timed or checked."""
    stage, model = bench.stage, bench.model
    winners: list[Winner] = []
    losers: list[Contest] = []
    with bench.step_log.time_step("propose"):
        reading = None if model.libraries else model.whole_model.begin_import()
        context_id, timing = _ensure_inside_context(stage), inside_timing_settings(stage)
        with stage.runtime.database.session() as session:
            tasks = Tasks(session).list_with_workloads(stage.job.id)
        for task, workload in tasks:
            stage.lease.raise_if_lost()
            contest = select_final_candidates(stage, task, workload, context_id)
            guesses = tuple(
                Winner(contest, slot.slot, Trial(slot.candidate, Outcome.OK), trace, None, timing=timing)
                for slot in contest.slots
                if (trace := bench.checker.complete_trace(contest.program, slot))
            )
            if guesses:
                winners.append(replace(guesses[0], rivals=guesses[1:]))
            else:
                losers.append(contest)
        if reading is not None:
            with suppress(MallornError):  # a build reads the model again and raises the error
                reading.wait()
    return TaskDecisions(winners, losers, inside_context_id=context_id)


def _ensure_inside_context(stage: LeasedStage) -> int:
    """Return the id of the measuring context for times inside the model; create it if new. It is
    of a device of this host, if any. Raises NoDevice if no device has the job's class."""
    devices = of_class(stage.runtime.fleet.devices(stage.target), stage.device_class)
    if not devices:
        raise no_device_error(stage.device_class)
    endpoints = [device.endpoint for device in devices]
    local_endpoints = [endpoint for endpoint in endpoints if runs_here(endpoint)]
    with stage.runtime.database.transaction() as session:
        endpoint = [*local_endpoints, *endpoints][0]
        target_id, target = stage.job.target_id, stage.target
        context = get_or_create_context(session, target_id, target, stage.options, endpoint)
        return Contexts(session).ensure_like(context, evaluator=inside_timing_settings(stage)).id
