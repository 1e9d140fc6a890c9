"""What a decision log adds up to."""

from typing import Any

from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.results.decision_summary import (
    Calibration,
    TaskAtRest,
    add_total_latencies,
    compute_calibration,
    summarise,
)


def task(index: int, name: str, weight: int, latency_us: float | None, reason: str = "") -> TaskStatus:
    known = {"index": index, "name": name, "weight": weight, "latency_us": latency_us, "reason": reason}
    return TaskStatus.model_validate({**known, "state": "done"})


TASKS = [task(0, "conv", 2, 8.0), task(1, "dense", 1, 5.0, "nothing left")]
JOB = JobStatus.model_validate(
    {
        "id": "j",
        "state": "done",
        "ended_because": "the budget is spent",
        "trials": 64,
        "options": {"policy": "dynatune"},
    }
)


def row(
    task: int, before_us: float | None, found_us: float | None, held: bool | None = None, **changes: Any
) -> RoundStatus:
    gain_us = (
        None if before_us is None else TASKS[task].weight * max(0.0, before_us - (found_us or before_us))
    )
    told = {
        "index": 0,
        "state": "done",
        "task_index": task,
        "previous_best_us": before_us,
        "best_us": found_us,
        "gain_us": gain_us,
        "is_in_interval": held,
        "trials": 8,
        "policy": "dynatune",
        **changes,
    }
    return RoundStatus.model_validate(told)


def totals(*rounds: RoundStatus) -> list[tuple[float | None, float | None]]:
    return [(told.total_before_us, told.total_after_us) for told in add_total_latencies(rounds, TASKS)]


def test_the_total_is_known_from_the_round_that_times_the_last_task() -> None:
    assert totals(row(0, None, 10.0), row(1, None, 5.0), row(0, 10.0, 8.0)) == [
        (None, None),
        (None, 25.0),
        (25.0, 21.0),
    ]


def test_a_task_without_a_round_counts_with_what_the_dataset_knows() -> None:
    assert totals(row(0, 10.0, 12.0)) == [(25.0, 25.0)]


def test_what_another_job_found_in_between_is_not_this_rounds_gain() -> None:
    assert totals(row(0, 10.0, 10.0), row(0, 9.0, None)) == [(25.0, 25.0), (23.0, 23.0)]


def test_tasks_that_were_never_timed_do_not_hide_the_total() -> None:
    tiny = task(2, "reshape", 9, None)
    (told,) = add_total_latencies([row(0, 10.0, 8.0)], [*TASKS, tiny])
    assert (told.total_before_us, told.total_after_us) == (25.0, 21.0)
    summary = summarise(JOB, [*TASKS, tiny], [told])
    assert (summary.total_us, summary.tasks_timed) == (21.0, 2)


def test_shares_add_up_and_the_hungriest_task_comes_first() -> None:
    rounds = [row(0, None, 10.0), row(1, None, 5.0), row(0, 10.0, 8.0), row(0, 8.0, 8.0)]
    conv, dense = summarise(JOB, TASKS, rounds).shares
    assert (conv.name, conv.rounds, conv.trials, conv.trials_share) == ("conv", 3, 24, 0.75)
    assert (conv.gain_us, conv.gain_share) == (4.0, 1.0)
    assert (dense.trials_share, dense.gain_us, dense.gain_share) == (0.25, 0.0, 0.0)


def test_only_judged_forecasts_count() -> None:
    rounds = [row(0, 9.0, 8.0, held) for held in (True, None, False, True, True)]
    assert compute_calibration(rounds) == Calibration(judged=4, held=3, share=0.75)
    assert compute_calibration([]) == Calibration(judged=0, held=0, share=None)


def test_the_summary_says_how_the_job_ended_and_who_rests() -> None:
    summary = summarise(JOB, TASKS, [row(0, None, 9.0, policy="first-pass"), row(0, 9.0, 8.0)])
    assert (summary.state, summary.explanation) == ("done", "the budget is spent")
    assert summary.rounds_by_policy == {"first-pass": 1, "dynatune": 1}
    assert summary.at_rest == [TaskAtRest(1, "dense", "nothing left")]
    assert (summary.trials, summary.budget, summary.gain_us) == (16, 64, 2.0)


def test_a_job_without_rounds_has_a_summary_too() -> None:
    summary = summarise(JOB, TASKS, [])
    assert (summary.rounds, summary.trials, summary.gain_us) == (0, 0, 0.0)
    assert [share.trials_share for share in summary.shares] == [0.0, 0.0]
