"""Decides the winners of all tasks, one after another; every decision is kept before the next begins."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from db.repositories.job_events_and_warnings import Events
from db.repositories.jobs import Jobs
from db.repositories.tasks import Tasks
from mallorn.core.values.event import CheckedEvent
from mallorn.core.values.finish_report import FinishReport
from workers.finish.contenders import Contest, contest_of, second_chance
from workers.finish.numeric_checker import Checker
from workers.finish.stored_decisions import Decision, StoredDecisions
from workers.finish.winners import Winner, decide
from workers.finish.zero_shot import answer
from workers.measure.base import Measurer
from workers.process.leased_stage import StageContext
from workers.process.time_slice import TimeSlice


@dataclass(frozen=True, slots=True)
class Decided:
    """The winners of a job, the contests without one, and how each was chosen where nothing was searched."""

    winners: Sequence[Winner]
    losers: Sequence[Contest]
    answers: FinishReport
    earlier_sec: float = 0.0  # what was decided in earlier turns took so long


def decide_all(claimed: StageContext, why: str, measurer: Measurer, check: Checker) -> Decided:
    """Decide every task. Raises TurnOver between two of them where others wait for this worker."""
    if not claimed.options.searches:
        told, without = answer(claimed, check)
        answers = {each.winner.contest.task.name: each.answered for each in told}
        return Decided([each.winner for each in told], without, FinishReport(answers=answers))
    with claimed.runtime.database.session() as session:
        tasks = Tasks(session).programs(claimed.job.id)
    steps, turn = StoredDecisions.of(claimed), TimeSlice(claimed.runtime.database, claimed.job.id)
    known = {task.id: step for task, workload in tasks if (step := steps.before(task, workload)) is not None}
    decisions = dict(known)
    for task, workload in tasks:
        if task.id in known:
            continue
        decisions[task.id] = _decide(claimed, contest_of(claimed, task, workload), measurer, check)
        words = f"{why}; {len(decisions)} of {len(tasks)} tasks are checked"
        _keep(steps, decisions[task.id], words)
        if len(decisions) < len(tasks):
            turn.offer(words)
    met = [decisions[task.id] for task, _ in tasks]
    winners = [each.winner for each in met if each.winner is not None]
    losers = [each.contest for each in met if each.winner is None]
    return Decided(winners, losers, FinishReport(), sum(step.sec for step in known.values()))


def _decide(claimed: StageContext, contest: Contest, measurer: Measurer, check: Checker) -> Decision:
    began_sec = time.monotonic()
    winner = decide(claimed, contest, measurer, check)
    if winner is None and (again := second_chance(claimed, contest)) is not None:
        winner = decide(claimed, again, measurer, check)
    met = contest if winner is None else winner.contest
    return Decision(met, winner, round(time.monotonic() - began_sec, 1))


def _keep(steps: StoredDecisions, decision: Decision, words: str) -> None:
    task, winner = decision.contest.task, decision.winner
    told = CheckedEvent(task=task.index, name=task.name, latency_us=winner.latency_us if winner else None)
    with steps.claimed.runtime.database.transaction() as session:
        steps.keep(session, decision)
        Events(session).append(task.job_id, told)
        Jobs(session).say(task.job_id, words)
