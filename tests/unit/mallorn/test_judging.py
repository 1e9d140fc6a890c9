"""Which job is the fastest: one figure decides, and the other is explained where it says the opposite."""

from typing import Any

from mallorn.core.states import JobState
from mallorn.results.compare_jobs import JobResult, Side, compare, find_fastest_job
from tests.fixtures.told import told_job


def job(name: str, model_us: float | None, tasks_us: float | None, steady: bool = True) -> JobResult:
    """A job as the comparison describes it, its model timed to within one in a hundred."""
    within = None if model_us is None else (model_us * 0.99, model_us * 1.01)
    same: dict[str, Any] = {"name": "", "state": JobState.DONE, "target": "", "model_id": "", "options": {}}
    effort: dict[str, Any] = {"trials": 0, "failures": 0, "seconds": None, "untuned_us": None}
    equal = {"at_equal_trials_us": None, "at_equal_seconds_us": None}
    times: dict[str, Any] = {"model_us": model_us, "reached_us": tasks_us, "interval_us": within}
    return JobResult(id=name, steady=steady, **same, **effort, **equal, **times)


def test_the_whole_model_decides_and_a_sum_that_says_the_opposite_is_explained() -> None:
    found = find_fastest_job([job("a", 100.0, 80.0), job("b", 120.0, 70.0)])
    assert (found.by, found.fastest) == ("the whole model", "a")
    assert found.why == "judged by the whole model: a is the fastest, 1.2 times faster than b"
    assert found.note.startswith(
        "the sum over tasks says otherwise (1.1 times slower): a task that is timed alone"
    )


def test_a_small_difference_is_told_in_percent_and_never_as_one_time() -> None:
    found = find_fastest_job([job("a", 100.0, 80.0), job("b", 103.0, 79.7)])
    assert found.why.endswith("a is the fastest, 3 % faster than b")
    assert "the sum over tasks says otherwise (1 % slower)" in found.note


def test_where_both_figures_agree_there_is_nothing_to_explain() -> None:
    assert find_fastest_job([job("a", 100.0, 70.0), job("b", 120.0, 80.0)]).note == ""


def test_intervals_that_overlap_do_not_tell_who_is_faster() -> None:
    found = find_fastest_job([job("a", 100.0, 80.0), job("b", 101.0, 70.0)])
    assert (found.fastest, found.note) == (None, "")
    assert found.why.endswith("a and b are too close to tell")


def test_without_a_time_of_every_model_the_sum_decides() -> None:
    found = find_fastest_job([job("a", 100.0, 80.0), job("b", None, 70.0)])
    assert (found.by, found.fastest) == ("the sum over tasks", "b")
    assert "as the whole model of b was not timed" in found.why


def test_a_model_that_was_timed_on_a_busy_host_does_not_decide() -> None:
    found = find_fastest_job([job("a", 300.0, 70.0, steady=False), job("b", 120.0, 80.0)])
    assert (found.by, found.fastest) == ("the sum over tasks", "a")
    assert found.note == (
        "the whole model says otherwise (2.5 times slower): the whole model of a was timed on a busy host"
    )


def test_sums_a_hair_apart_do_not_tell_who_is_faster() -> None:
    assert find_fastest_job([job("a", None, 100.0), job("b", None, 101.0)]).fastest is None


def test_without_any_times_nothing_is_judged() -> None:
    found = find_fastest_job([job("a", None, None), job("b", 120.0, 80.0)])
    assert (found.by, found.fastest) == (None, None)


def test_reports_of_old_are_believed() -> None:
    timing = {"tuned": {"median": 5.0, "low": 4.0, "high": 6.0}}
    busy = {"conditions": {"steady": False, "note": "busy"}}
    reports = [{"latency_us": timing}, None, busy]
    first, second, third = compare([Side.of(told_job(report=report), [], []) for report in reports]).jobs
    assert (first.steady, first.interval_us, first.model_us) == (True, (4.0, 6.0), 5.0)
    assert (second.steady, second.interval_us, second.model_us) == (True, None, None)
    assert not third.steady
