"""Which job is the fastest: one figure decides, and the other is explained where it says the opposite."""

from typing import Any

from mallorn.core.states import JobState
from mallorn.results.compare_jobs import JobResult, Side, compare, find_fastest_job
from tests.fixtures.kept import Kept
from tests.fixtures.told import told_job


def job(name: str, model_us: float | None, tasks_us: float | None, steady: bool = True) -> JobResult:
    """A job as the comparison describes it, its model timed to within one in a hundred."""
    within = None if model_us is None else (model_us * 0.99, model_us * 1.01)
    same: dict[str, Any] = {"name": "", "state": JobState.DONE, "target": "", "model_id": "", "options": {}}
    effort: dict[str, Any] = {"trials": 0, "failures": 0, "seconds": None, "untuned_us": None}
    equal = {"at_equal_trials_us": None, "at_equal_seconds_us": None}
    times: dict[str, Any] = {"model_us": model_us, "reached_us": tasks_us, "interval_us": within}
    return JobResult(id=name, steady=steady, **same, **effort, **equal, **times)


# Which of two jobs is the fastest, by what is known of both: tests/kept/fastest-job.txt.
PAIRS = {
    "the whole model decides, and a sum that says the opposite is explained": (
        job("a", 100.0, 80.0),
        job("b", 120.0, 70.0),
    ),
    "a small difference is told in percent and never as one time": (
        job("a", 100.0, 80.0),
        job("b", 103.0, 79.7),
    ),
    "where both figures agree there is nothing to explain": (job("a", 100.0, 70.0), job("b", 120.0, 80.0)),
    "intervals that overlap do not tell which is faster": (job("a", 100.0, 80.0), job("b", 101.0, 70.0)),
    "without a time of every model the sum decides": (job("a", 100.0, 80.0), job("b", None, 70.0)),
    "a model that was timed on a busy host does not decide": (
        job("a", 300.0, 70.0, steady=False),
        job("b", 120.0, 80.0),
    ),
    "sums a hair apart do not tell which is faster": (job("a", None, 100.0), job("b", None, 101.0)),
    "without any times nothing is judged": (job("a", None, None), job("b", 120.0, 80.0)),
}


def test_which_job_is_the_fastest(kept: Kept) -> None:
    found = {state: find_fastest_job([*pair]) for state, pair in PAIRS.items()}
    kept(
        "fastest-job",
        {
            state: f"by: {each.by}\nfastest: {each.fastest}\n{each.why}\n{each.note}"
            for state, each in found.items()
        },
    )


def test_reports_of_old_are_believed() -> None:
    timing = {"tuned": {"median": 5.0, "low": 4.0, "high": 6.0}}
    busy = {"conditions": {"steady": False, "note": "busy"}}
    reports = [{"latency_us": timing}, None, busy]
    first, second, third = compare([Side.of(told_job(report=report), [], []) for report in reports]).jobs
    assert (first.steady, first.interval_us, first.model_us) == (True, (4.0, 6.0), 5.0)
    assert (second.steady, second.interval_us, second.model_us) == (True, None, None)
    assert not third.steady
