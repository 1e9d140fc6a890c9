"""Plans the next rounds of a job, or the end of its tuning, as a pure function."""

from dataclasses import replace
from typing import Final

from mallorn.core.registry import resolve
from mallorn.core.values.decision_log import PlannedRound
from mallorn.core.values.expected_gain import Outlook
from services.planner.belief import Belief, Forecast
from services.planner.budgets import (
    MOST_A_TASK,
    ROUND_SIZE,
    TrialBudget,
    candidates,
    ceiling,
    expected_trials,
    first_size,
    had_fair_look,
    pays,
    prospects,
    round_size,
    seconds_per_trial,
)
from services.planner.eligible_tasks import (
    first_visit,
    over,
    resting,
    searcher,
    total_us,
    unvisited,
    why_all_rest,
)
from services.planner.planner_values import JobPlan, JobView
from services.planner.policy import Arm, Policy, reason

BELIEF: Final = "power-law"


def plan(job: JobView) -> JobPlan:
    """Return rounds for the job's free slots, or the reason why tuning is finished."""
    decision = _Decision(job)
    rounds = decision.fill()
    return JobPlan(tuple(rounds), decision.why_finished(), decision.outlook(), decision.changes())


class _Decision:
    """A decision in progress: measurements are fixed, planned rounds count as spent."""

    def __init__(self, job: JobView) -> None:
        self._job = job
        self._policy: Policy = resolve("policy", job.policy)()
        self._belief: Belief = resolve("belief", BELIEF)()
        self._budget = TrialBudget(job)
        self._tasks = list(job.tasks)
        self._size = job.round_size or ROUND_SIZE
        self._forecasts: list[Forecast] = self._belief.forecast(job.tasks, self._size)
        self._total_us = total_us(job.tasks, self._forecasts)
        self._retired = [
            over(task, job.task_trials) or (resting(task, ahead) if self._policy.rests else "")
            for task, ahead in zip(job.tasks, self._forecasts, strict=True)
        ]
        self._prospects = prospects(job.tasks, self._forecasts, self._retired, self._size)

    def fill(self) -> list[PlannedRound]:
        rounds: list[PlannedRound] = []
        while self._budget.open_rounds < self._job.slots and (arms := self._arms()):
            rounds.append(self._next_round(arms, self._job.rounds_planned + len(rounds)))
        return rounds

    def changes(self) -> dict[int, str]:
        """Return tasks that retire now, with the reason; an empty text reactivates a task."""
        reasons = zip(self._job.tasks, self._retired, strict=True)
        return {task.id: words for task, words in reasons if bool(words) != bool(task.retired)}

    def outlook(self) -> Outlook | None:
        """Return the outlook; None until every task that matters has a time."""
        untimed = [at for at, task in enumerate(self._job.tasks) if task.best_us is None]
        if self._undertried([at for at in untimed if not self._retired[at]]):
            return None
        job, ahead = self._job, self._prospects
        trials = expected_trials(job, ahead) if job.auto else max(0, candidates(job) - job.spent)
        return ahead.outlook(trials if ahead.gains_us else 0)

    def why_finished(self) -> str:
        """Return why tuning is over; empty while it goes on or rounds are open."""
        job = self._job
        if self._budget.open_rounds:
            return ""
        if job.trials == 0:
            return "no trial was asked for"
        if job.trials is not None and job.spent >= job.trials:
            return f"the budget of {job.trials} trials is spent"
        if all(self._retired):
            return self._why_all_retired()
        if job.auto and (why := self._why_no_more()):
            return why
        # Tasks blocked by another job's round count, because they may be tuned later.
        left = [task for task, rests in zip(self._tasks, self._retired, strict=True) if not rests]
        no_time = job.seconds_left is not None and not any(self._budget.allows(task) for task in left)
        return "the time budget is spent" if no_time else ""

    def _next_round(self, arms: dict[int, Arm], index: int) -> PlannedRound:
        # Differs for every round of a job, and is the same in every process.
        seed = (self._job.seed * 1_000_003 + index * 7_919 + 1) % (2**31 - 1)
        first_visits = unvisited(arms.values(), self._total_us)
        if first_visits:
            choice = first_visit(first_visits)
        else:
            choice = self._policy.choose(list(arms.values()), self._tasks, seed)
        at = next(at for at, arm in arms.items() if arm.task is choice.task)
        first = first_size(self._job, self._policy.first_visit)
        size = min(first, arms[at].size) if first_visits else choice.size or arms[at].size
        self._budget.book(choice.task, size)
        self._tasks[at] = replace(choice.task, in_flight=size, blocked=True)
        is_usual = size == self._size
        forecasts = self._forecasts if is_usual else self._belief.forecast(self._job.tasks, size)
        why = reason(choice, forecasts[at], "first-pass" if first_visits else self._job.policy)
        return PlannedRound(choice.task.id, index, size, seed, why, searcher(choice.task))

    def _arms(self) -> dict[int, Arm]:
        free = [at for at in self._tunable() if not self._tasks[at].blocked]
        arms: dict[int, Arm] = {}
        for at in free:
            task = self._tasks[at]
            size = min(round_size(self._job, task, len(free)), self._budget.allows(task))
            if size > 0:
                arms[at] = Arm(task, self._forecasts[at], size, size * seconds_per_trial(self._job, task))
        return arms

    def _tunable(self) -> list[int]:
        """Return the positions of tasks that get more rounds.

        With the budget `auto`, once no gain is worth its time, only undertried tasks get them.
        """
        left = [at for at, words in enumerate(self._retired) if not words]
        return left if not self._job.auto or pays(self._prospects) else self._undertried(left)

    def _undertried(self, positions: list[int]) -> list[int]:
        """Return the positions of tasks with too few results to be left as they are."""
        tasks, total = self._job.tasks, self._total_us
        return [at for at in positions if not had_fair_look(tasks[at], self._forecasts[at], total)]

    def _why_no_more(self) -> str:
        """Return why a job with the budget `auto` ends; empty while it goes on."""
        if not self._tunable():
            return self._gain_words()
        if self._job.spent < ceiling(self._job):
            return ""
        return f"the {MOST_A_TASK} trials a task are spent that a job gets by itself; {self._gain_words()}"

    def _gain_words(self) -> str:
        ahead = self._prospects.outlook(0)
        return ahead.words if ahead else "nothing was measured"

    def _why_all_retired(self) -> str:
        if all(task.left_out for task in self._tasks):
            return "no task has a name that the job asks for"
        rest = [at for at, task in enumerate(self._tasks) if not over(task, self._job.task_trials)]
        if not rest:
            return "no task is left to tune"
        if self._job.auto:
            return self._gain_words()
        return why_all_rest([self._tasks[at] for at in rest], [self._forecasts[at] for at in rest])
