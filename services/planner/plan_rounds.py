"""Plans the next rounds of a job, or the end of its tuning, as a pure function."""

from dataclasses import replace

from mallorn.core.registry import resolve
from mallorn.core.values.decision_log import PlannedRound
from mallorn.core.values.expected_gain import WORTH, Outlook
from mallorn.services.planner import budgets
from mallorn.services.planner.eligible_tasks import (
    first_visit,
    searcher,
    total_us,
    unvisited,
    why_all_rest,
    why_task_is_finished,
    why_task_rests,
)
from mallorn.services.planner.planner_values import Forecast, JobPlan, JobView
from mallorn.services.planner.policy import Arm, Policy, build_round_notes


def plan_rounds(job: JobView) -> JobPlan:
    """Return rounds up to the job's limit of open ones, or the reason why tuning is finished."""
    decision = _Decision(job)
    rounds = decision.plan_new_rounds()
    return JobPlan(tuple(rounds), decision.why_finished(), decision.outlook(), decision.changed_retirements())


class _Decision:
    """Plans one job: its rounds so far do not change, and planned rounds count as spent."""

    def __init__(self, job: JobView) -> None:
        self._job = job
        self._policy: Policy = resolve("policy", job.policy)()
        from mallorn.services.planner.power_law_belief import PowerLaw  # loads scipy

        self._belief = PowerLaw()
        self._budget = budgets.TrialBudget(job)
        self._tasks = list(job.tasks)
        self._size = job.round_size or job.usual_size
        self._forecasts: list[Forecast] = self._belief.forecast(job.tasks, self._size)
        self._total_us = total_us(job.tasks, self._forecasts)
        self._retired = [
            why_task_is_finished(task, job.task_trials)
            or (why_task_rests(task, forecast) if self._policy.rests else "")
            for task, forecast in zip(job.tasks, self._forecasts, strict=True)
        ]
        self._prospects = budgets.compute_expected_gain(job.tasks, self._forecasts, self._retired, self._size)
        self._trials_to_come = (
            budgets.expected_trials(job, self._prospects)
            if job.has_auto_budget
            else max(0, budgets.budget_in_candidates(job) - job.spent_trials)
        )

    def plan_new_rounds(self) -> list[PlannedRound]:
        rounds: list[PlannedRound] = []
        while self._budget.open_rounds < self._job.max_open_rounds and (arms := self._arms()):
            index = self._job.rounds_planned + len(rounds)
            # Differs for every round of a job, and is the same in every process.
            seed = (self._job.seed * 1_000_003 + index * 7_919 + 1) % (2**31 - 1)
            first_visits = unvisited(arms.values(), self._total_us)
            if first_visits:
                choice = first_visit(first_visits)
            else:
                choice = self._policy.choose(list(arms.values()), self._tasks, seed)
            position = next(i for i, arm in arms.items() if arm.task is choice.task)
            first = budgets.choose_first_round_size(self._job, self._policy.first_visit)
            size = min(first, arms[position].size) if first_visits else choice.size or arms[position].size
            self._budget.book_round(choice.task, size)
            task, open_sizes = choice.task, (*choice.task.open_sizes, size)
            count = task.workload_rounds + 1
            self._tasks[position] = replace(task, open_sizes=open_sizes, workload_rounds=count)
            is_usual = size == self._size
            forecasts = self._forecasts if is_usual else self._belief.forecast(self._job.tasks, size)
            policy = "first-pass" if first_visits else self._job.policy
            notes = build_round_notes(choice, forecasts[position], policy)
            rounds.append(PlannedRound(choice.task.id, index, size, seed, notes, searcher(choice.task)))
        return rounds

    def changed_retirements(self) -> dict[int, str]:
        """Map tasks (by id) that now stop to the reason, those that go on again to ""."""
        reasons = zip(self._job.tasks, self._retired, strict=True)
        return {task.id: words for task, words in reasons if bool(words) != bool(task.retired)}

    def outlook(self) -> Outlook | None:
        """Return the job's forecast; None until every task that matters has a time."""
        untimed = [i for i, task in enumerate(self._job.tasks) if task.best_us is None]
        if self._positions_needing_results([i for i in untimed if not self._retired[i]]):
            return None
        gain = self._prospects
        return gain.outlook(self._trials_to_come if gain.gains_us else 0)

    def why_finished(self) -> str:
        """Return why tuning is over; empty if it goes on or rounds are still open."""
        job = self._job
        if self._budget.open_rounds:
            return ""
        if job.trials == 0:
            return "no trial was asked for"
        if job.trials is not None and job.spent_trials >= job.trials:
            return f"the budget of {job.trials} trials is spent"
        if all(self._retired):
            if all(task.left_out for task in self._tasks):
                return "no task has a name that the job asks for"
            resting_tasks = [
                i for i, task in enumerate(self._tasks) if not why_task_is_finished(task, job.task_trials)
            ]
            if not resting_tasks:
                return "no task is left to tune"
            if self._job.has_auto_budget:
                return self._describe_gain()
            tasks = [self._tasks[i] for i in resting_tasks]
            return why_all_rest(tasks, [self._forecasts[i] for i in resting_tasks])
        if job.has_auto_budget and not self._tunable():
            return self._describe_gain()
        if job.has_auto_budget and job.spent_trials >= budgets.auto_trial_limit(job):
            gain = self._describe_gain()
            return f"the {budgets.MOST_A_TASK} trials a task are spent that a job gets by itself; {gain}"
        # Tasks that wait for another job's rounds count, because they may be tuned later.
        left = [task for task, rests in zip(self._tasks, self._retired, strict=True) if not rests]
        has_no_time = job.seconds_left is not None and not any(
            self._budget.remaining_candidates(task) for task in left
        )
        return "the time budget is spent" if has_no_time else ""

    def _arms(self) -> dict[int, Arm]:
        """Return the tasks that may be tuned now, with forecasts, keyed by position: of
        those that may get a round, the ones whose workload has the fewest open rounds."""
        tunable, arms = self._tunable(), dict[int, Arm]()
        for count in range(budgets.MOST_IN_FLIGHT_BY_TIME):
            for i in tunable:
                task = self._tasks[i]
                if task.workload_rounds != count:
                    continue
                size = budgets.round_size(self._job, task, len(tunable))
                size = min(size, self._budget.remaining_candidates(task))
                if size > 0 and (not count or self._may_have_another(i, size, len(tunable))):
                    seconds = size * budgets.seconds_per_trial(self._job, task)
                    arms[i] = Arm(task, self._forecasts[i], size, seconds)
            if arms:
                break
        return arms

    def _may_have_another(self, position: int, size: int, tasks: int) -> bool:
        """Return whether a task, whose workload has an open round, may get another.

        A round of the workload must have brought a result. If all open rounds are of other
        jobs, that suffices, so that jobs take turns. Unless the job has a time budget, at
        most SHARE_IN_FLIGHT of the trials that the task will have got are in flight: those
        so far and its part of those that the budget still gives to `tasks` tasks.
        """
        job, planned, task = self._job, self._tasks[position], self._job.tasks[position]
        if all(point.best_us is None for point in task.points):
            return False
        if not planned.open_sizes or job.seconds_left is not None:
            return True
        if planned.workload_rounds >= budgets.MOST_IN_FLIGHT:
            return False
        trials = task.trials + task.in_flight + self._trials_to_come / tasks
        trials = trials if job.task_trials is None else min(trials, job.task_trials)
        return planned.in_flight + size <= budgets.SHARE_IN_FLIGHT * trials

    def _tunable(self) -> list[int]:
        """Return the positions of tasks that get more rounds.

        With the budget `auto`, once no gain is worth its time, these are only tasks that
        have too few results.
        """
        left = [i for i, words in enumerate(self._retired) if not words]
        if not self._job.has_auto_budget or self._prospects.gain_share_after() >= WORTH:
            return left
        return self._positions_needing_results(left)

    def _positions_needing_results(self, positions: list[int]) -> list[int]:
        """Return the positions of tasks that have too few results to stop tuning them."""
        tasks, total = self._job.tasks, self._total_us
        return [i for i in positions if not budgets.has_enough_results(tasks[i], self._forecasts[i], total)]

    def _describe_gain(self) -> str:
        outlook = self._prospects.outlook(0)
        return outlook.limit_and_gain_text if outlook else "nothing was measured"
