"""`mallorn jobs compare`: jobs beside one another."""

import json
import re
from functools import partial
from typing import Any

import pytest

from mallorn.results.compare_jobs import Side, compare
from tests.fixtures.answers import Shell, mallorn
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.decision_log import FIRST_PASS, run_round
from tests.fixtures.kept import Kept
from tests.fixtures.told import told_job, told_round, told_task

typed = partial(mallorn, "jobs", "compare")


@pytest.fixture
def two_jobs(owned: OwnedRows) -> tuple[str, str]:
    """One with 30 us + 2 x 100 us after four trials, one with 20 us + 2 x 90 us after five."""
    run_round(owned, "w0", [30.0, 40.0], FIRST_PASS)
    run_round(owned, "w1", [100.0, None], FIRST_PASS)
    first = owned.job_id
    owned.job_id = owned.write(lambda session: owned.add_job(session, "local", ("w0", "w1")))
    run_round(owned, "w0", [20.0, 41.0], FIRST_PASS)
    run_round(owned, "w1", [90.0, 95.0, None], FIRST_PASS)
    return first, owned.job_id


@pytest.mark.usefixtures("named_coordinator")
def test_two_jobs_stand_side_by_side_and_one_is_refused(
    two_jobs: tuple[str, str], shell: Shell, kept: Kept
) -> None:
    shell.names |= dict(zip(("FIRST", "SECOND"), two_jobs, strict=True))
    shell("two jobs", "jobs compare FIRST SECOND")
    shell.texts["two jobs"] = re.sub("after M:SS.*\n", "", shell.texts["two jobs"])
    shell("one job", "jobs compare FIRST")
    kept("compared-jobs", shell.texts)


@pytest.mark.usefixtures("named_coordinator")
def test_json_has_an_entry_a_job_in_the_order_given(two_jobs: tuple[str, str]) -> None:
    data = json.loads(typed(*reversed(two_jobs), "--json").stdout)
    assert [job["id"] for job in data["jobs"]] == list(reversed(two_jobs))
    assert [job["reached_us"] for job in data["jobs"]] == [200.0, 230.0]
    assert [task["latency_us"] for task in data["tasks"]] == [[20.0, 30.0], [90.0, 100.0]]


def side(found_us: list[float], **changes: Any) -> Side:
    before = [None, *found_us]
    rounds = [
        told_round(at, 0, us, before_us=known)
        for at, (us, known) in enumerate(zip(found_us, before, strict=False))
    ]
    return Side.of(told_job(**changes), [told_task(0, min(found_us))], rounds)


def test_at_equal_effort_a_longer_job_counts_as_far_as_the_shorter_went() -> None:
    found = compare([side([9.0, 8.0, 3.0]), side([7.0, 6.0])])
    assert (found.equal_trials, found.equal_seconds) == (32, 20.0)
    assert [job.at_equal_trials_us for job in found.jobs] == [8.0, 6.0]
    assert [job.at_equal_seconds_us for job in found.jobs] == [8.0, 6.0]


def test_a_job_without_times_leaves_nothing_to_compare_at_equal_effort() -> None:
    empty = Side.of(told_job("importing"), [], [])
    found = compare([side([9.0]), empty])
    assert [job.at_equal_trials_us for job in found.jobs] == [None, None]
    assert found.jobs[1].seconds is None


def test_tasks_are_matched_by_workload_and_missing_ones_are_null() -> None:
    other = Side.of(told_job(), [told_task(5, 2.0, workload="key0"), told_task(6, 4.0)], [])
    tasks = compare([side([9.0]), other]).tasks
    assert [task.latency_us for task in tasks] == [[9.0, 2.0], [None, 4.0]]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": '{"kind":"cuda"}'}, "different targets"),
        ({"options": {"stopping": "racing"}}, "timed in different ways"),
        ({"model_id": "b" * 64}, "different models"),
    ],
)
def test_times_that_do_not_compare_are_said_to(changes: dict[str, Any], said: str) -> None:
    (warning,) = compare([side([9.0]), side([9.0], **changes)]).warnings
    assert said in warning


def test_jobs_alike_bring_no_warning() -> None:
    assert compare([side([9.0]), side([8.0])]).warnings == []
