"""Decide the winners of all tasks one by one; each decision is stored before the next begins."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from sqlalchemy.orm import Session

from db.repositories.job_events_and_warnings import Events
from db.repositories.job_progress import progress
from db.repositories.jobs import Jobs
from db.repositories.search_and_finish_states import FinishSteps
from db.repositories.sketches import Sketches
from db.repositories.tasks import Tasks
from db.tables import Task, Workload
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.event import CheckedEvent
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.trial import DecidedTask, DecidedWinner, KeptCandidate
from workers.finish.contenders import Contest, contest_of, second_chance
from workers.finish.numeric_checker import Checker
from workers.finish.winners import Winner, decide
from workers.finish.zero_shot import answer
from workers.measure.base import MeasureInput, Measurer
from workers.process.leased_stage import StageContext
from workers.process.time_slice import TimeSlice
from workers.round.round_context import program_of
from workers.tvm.code_digest import code_digest


@dataclass(frozen=True, slots=True)
class Decision:
    """A task's contest, its winner, and the seconds it took."""

    contest: Contest
    winner: Winner | None
    sec: float


@dataclass(frozen=True, slots=True)
class StoredDecisions:
    """Decisions stored by earlier attempts to finish the job."""

    claimed: StageContext
    trials: int
    known: Mapping[int, DecidedTask]
    sketches: Mapping[str, Sketch]

    @classmethod
    def of(cls, claimed: StageContext) -> Self:
        """Return the decisions still valid: made after as many trials, by the same code."""
        with claimed.runtime.database.session() as session:
            trials = progress(session, Jobs(session).get(claimed.job.id, None)).spent
            decided = FinishSteps(session).of(claimed.job.id, trials, code_digest())
            keys = {each.sketch for step in decided.values() for each in step.candidates}
            return cls(claimed, trials, decided, Sketches(session).by_key(keys))

    def before(self, task: Task, workload: Workload) -> Decision | None:
        """Return an earlier attempt's decision; None without one, or without its sketches."""
        step = self.known.get(task.id)
        if step is None or any(each.sketch not in self.sketches for each in step.candidates):
            return None
        means = {_candidate(each): each.means for each in step.candidates}
        slots = tuple(
            MeasureInput(number, candidate, self.sketches[candidate.sketch])
            for number, candidate in enumerate(means)
        )
        guesses = () if step.guess is None else (_candidate(step.guess),)
        contest = Contest(task, workload, program_of(workload), slots, guesses, means)
        return Decision(contest, _winner(step.winner, contest) if step.winner else None, step.sec)

    def keep(self, session: Session, decision: Decision) -> None:
        """Store a decision. Raises LeaseLost if this worker no longer holds the lease."""
        contest = decision.contest
        step = DecidedTask(
            candidates=tuple(_pack(slot.candidate, contest) for slot in contest.slots),
            guess=next((_pack(guess, contest) for guess in contest.guesses), None),
            winner=None if decision.winner is None else _pack_winner(decision.winner),
            sec=decision.sec,
            code=code_digest(),
        )
        FinishSteps(session).keep(self.claimed.hold, decision.contest.task.id, self.trials, step)


def _candidate(kept: KeptCandidate) -> Candidate:
    return Candidate(kept.sketch, kept.decisions)


def _winner(kept: DecidedWinner, contest: Contest) -> Winner:
    return Winner(
        contest,
        kept.slot,
        kept.trial,
        kept.trace,
        kept.max_error,
        rivals=tuple(_winner(each, contest) for each in kept.rivals),
        guess=None if kept.guess is None else _winner(kept.guess, contest),
        versions=tuple(_winner(each, contest) for each in kept.versions),
    )


def _pack(candidate: Candidate, contest: Contest) -> KeptCandidate:
    means = contest.means.get(candidate, "")
    return KeptCandidate(sketch=candidate.sketch, decisions=candidate.decisions, means=means)


def _pack_winner(winner: Winner) -> DecidedWinner:
    return DecidedWinner(
        slot=winner.slot,
        trial=winner.trial,
        trace=winner.trace,
        max_error=winner.max_error,
        rivals=tuple(map(_pack_winner, winner.rivals)),
        guess=None if winner.guess is None else _pack_winner(winner.guess),
        versions=tuple(map(_pack_winner, winner.versions)),
    )


@dataclass(frozen=True, slots=True)
class Decided:
    """The winners of a job, contests without one, and sources of answers without a search."""

    winners: Sequence[Winner]
    losers: Sequence[Contest]
    answers: FinishReport
    earlier_sec: float = 0.0  # seconds spent on decisions of earlier attempts


def decide_all(claimed: StageContext, why: str, measurer: Measurer, check: Checker) -> Decided:
    """Decide every task. Raises TimeSliceOver after a task if other jobs wait."""
    if not claimed.options.searches:
        pairs, losers = answer(claimed, check)
        answers = {winner.contest.task.name: answered for winner, answered in pairs}
        return Decided([winner for winner, _ in pairs], losers, FinishReport(answers=answers))
    with claimed.runtime.database.session() as session:
        tasks = Tasks(session).programs(claimed.job.id)
    steps, turn = StoredDecisions.of(claimed), TimeSlice(claimed.runtime.database, claimed.job.id)
    stored = {task.id: step for task, workload in tasks if (step := steps.before(task, workload)) is not None}
    decisions = dict(stored)
    for task, workload in tasks:
        if task.id in stored:
            continue
        decisions[task.id] = decision = _decide(claimed, contest_of(claimed, task, workload), measurer, check)
        words = f"{why}; {len(decisions)} of {len(tasks)} tasks are checked"
        latency_us = decision.winner.latency_us if decision.winner else None
        with claimed.runtime.database.transaction() as session:
            steps.keep(session, decision)
            event = CheckedEvent(task=task.index, name=task.name, latency_us=latency_us)
            Events(session).append(task.job_id, event)
            Jobs(session).say(task.job_id, words)
        if len(decisions) < len(tasks):
            turn.offer(words)
    in_order = [decisions[task.id] for task, _ in tasks]
    winners = [each.winner for each in in_order if each.winner is not None]
    losers = [each.contest for each in in_order if each.winner is None]
    return Decided(winners, losers, FinishReport(), sum(step.sec for step in stored.values()))


def _decide(claimed: StageContext, contest: Contest, measurer: Measurer, check: Checker) -> Decision:
    began_sec = time.monotonic()
    winner = decide(claimed, contest, measurer, check)
    if winner is None and (next_contest := second_chance(claimed, contest)) is not None:
        winner = decide(claimed, next_contest, measurer, check)
    final_contest = contest if winner is None else winner.contest
    return Decision(final_contest, winner, round(time.monotonic() - began_sec, 1))
