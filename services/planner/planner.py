"""Turns a job's state into the next rounds, or into the end of tuning. Pure."""

from dataclasses import replace
from typing import Final

from mallorn.core.names import resolve
from services.planner.policy import Choice, Policy
from services.planner.values import JobView, Plan, PlannedRound, TaskView

SMALLEST_ROUND: Final = 4
ROUND_SIZE: Final = 16
HOPELESS_ROUNDS: Final = 3  # rounds in a row without a valid result before a task is retired
# The first pass takes at most this share of the budget, so that the policy has something to steer.
FIRST_PASS_SHARE: Final = 0.5


def plan(job: JobView) -> Plan:
    """Fill the job's free round slots; say so when the budget is spent or nothing is left to tune."""
    retired = {task.id: words for task in job.tasks if (words := _over(task))}
    job = replace(job, tasks=tuple(_retire(task, retired) for task in job.tasks))
    policy: Policy = resolve("policy", job.policy)()
    rounds: list[PlannedRound] = []
    while job.open_rounds < job.slots and (step := _next_round(job, policy)) is not None:
        rounds.append(step)
        job = _with_round(job, step)
    finished = "" if rounds or job.open_rounds else _why_finished(job)
    return Plan(tuple(rounds), finished, retired)


def _next_round(job: JobView, policy: Policy) -> PlannedRound | None:
    eligible = [task for task in job.tasks if not task.blocked and not task.retired]
    left = _affordable(job)
    if not eligible or left < 1:
        return None
    seed = _round_seed(job)
    untouched = [task for task in eligible if task.rounds == 0 and not task.curve_us]
    choice = _first_pass(untouched) if untouched else policy.choose(eligible, seed)
    size = min(_round_size(job, first=bool(untouched)), left)
    reason = {"policy": "first-pass" if untouched else job.policy, "score": choice.score, "why": choice.why}
    return PlannedRound(choice.task.id, job.rounds_planned, size, seed, reason | choice.details)


def _first_pass(tasks: list[TaskView]) -> Choice:
    task = max(tasks, key=lambda task: (task.weight * task.flops, -task.index))
    return Choice(
        task, 0.0, "first visit, the heaviest tasks first", {"weighted_flops": task.weight * task.flops}
    )


def _round_size(job: JobView, *, first: bool) -> int:
    size = job.round_size or ROUND_SIZE
    if not first:
        return size
    share = int(job.trials * FIRST_PASS_SHARE / max(1, len(job.tasks)))
    return max(SMALLEST_ROUND, min(size, share))


def _affordable(job: JobView) -> int:
    """How many more candidates the budgets allow, those in flight counted."""
    left = job.trials - job.spent
    if job.seconds_left is None:
        return left
    if job.seconds_left <= 0:
        return 0
    if job.seconds_per_trial is None:
        return left
    in_flight = sum(task.in_flight for task in job.tasks)
    return min(left, int(job.seconds_left / job.seconds_per_trial) - in_flight)


def _round_seed(job: JobView) -> int:
    """Distinct for every round of a job and alike in every process."""
    return (job.seed * 1_000_003 + job.rounds_planned * 7_919 + 1) % (2**31 - 1)


def _with_round(job: JobView, step: PlannedRound) -> JobView:
    tasks = tuple(
        replace(task, in_flight=step.size, blocked=True) if task.id == step.task_id else task
        for task in job.tasks
    )
    return replace(job, tasks=tasks, rounds_planned=job.rounds_planned + 1)


def _over(task: TaskView) -> str:
    """Why a task gets no more rounds; empty while it may."""
    if task.retired:
        return ""
    if task.exhausted:
        return f"its space has nothing left to try after {task.trials} trials"
    if task.lost_rounds >= HOPELESS_ROUNDS:
        return f"its last {task.lost_rounds} rounds lost every worker that took them"
    if task.best_us is None and task.failed_rounds >= HOPELESS_ROUNDS:
        return f"no valid result in {task.trials} trials; its default schedule is kept"
    return ""


def _retire(task: TaskView, retired: dict[int, str]) -> TaskView:
    return replace(task, retired=retired.get(task.id, task.retired))


def _why_finished(job: JobView) -> str:
    if job.spent >= job.trials:
        return f"the budget of {job.trials} trials is spent"
    if job.seconds_left is not None and _affordable(job) < 1:
        return "the time budget is spent"
    if all(task.retired for task in job.tasks):
        return "no task is left to tune"
    return ""
