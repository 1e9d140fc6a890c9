"""From the last round to the schedules: who wins, and what is recorded."""

import json

import pytest
from sqlalchemy import update

from mallorn.core.errors import Unschedulable
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState
from mallorn.db.measurement_codec import unpack_decisions, unpack_text
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.tables import Measurement
from mallorn.searchers.base import DEFAULT, proposal_method_of
from mallorn.workers.subprocesses.errors import ChildCrashed, ChildFailed, ChildTimeout
from tests.fixtures.finishing import (
    best,
    candidates,
    export_of,
    first_guess,
    key,
    promoted,
    report,
)
from tests.fixtures.tuned_jobs import tuned, untuned
from tests.fixtures.work import finish


def test_every_task_ends_in_the_export_with_its_fastest_candidate(workshop, exported):
    job = tuned(workshop)
    fastest = best(workshop, job)[0]
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert len(exported) == 2
    assert json.loads(exported[0].trace) == [fastest.candidate.sketch, list(fastest.candidate.decisions)]
    assert len(promoted(workshop, job)) == 2
    assert report(workshop, job)["tasks_without_winner"] == []
    assert sorted(path.name for path in export_of(workshop, job).iterdir()) == [
        "apply.py",
        "database_tuning_record.json",
        "database_workload.json",
        "graphc.zip",
        "manifest.json",
        "report.json",
        "requirements.txt",
    ]


def test_a_first_guess_that_is_as_fast_once_measured_again_wins(workshop, exported):
    job = tuned(workshop, ("w0",))
    guess, as_before = first_guess(workshop), workshop.bench.times
    workshop.bench.times = lambda us: 5.0 if as_before(us) == guess.latency_us else as_before(us)
    finish(workshop, job)
    assert json.loads(exported[0].trace)[1] == list(unpack_decisions(guess.decisions))
    assert report(workshop, job)["search_methods"] == {DEFAULT: 1}


def test_a_winner_that_computes_wrong_is_recorded_and_the_next_one_wins(workshop, exported, check):
    job = tuned(workshop, ("w0",))
    first, second = best(workshop, job, 2)
    check.wrong.add(next(c for c in candidates(workshop) if (c.sketch, c.decisions) == key(first)))
    finish(workshop, job)
    assert json.loads(exported[0].trace) == [second.candidate.sketch, list(second.candidate.decisions)]
    (refuted,) = workshop.rows(kind="finish", outcome="wrong_result")
    assert "relative error 1" in refuted.error
    assert refuted.latency_us is None
    (schedule,) = promoted(workshop, job)
    assert json.loads(unpack_text(schedule.trace)) == [
        second.candidate.sketch,
        list(second.candidate.decisions),
    ]


def test_what_computes_wrong_never_becomes_best_again(workshop, exported, check):
    job = tuned(workshop, ("w0",))
    first, second = best(workshop, job, 2)
    check.wrong.add(next(c for c in candidates(workshop) if (c.sketch, c.decisions) == key(first)))
    finish(workshop, job)
    assert key(best(workshop, job)[0]) == key(second)
    (task,) = workshop.read(lambda session: Tasks(session).summaries(job))
    assert task.best_us == second.latency_us

    workshop.write(lambda session: Jobs(session).resume(job, "ada", 8))
    workshop.work(job)
    check.wrong.clear()  # even if the next check were blind
    finish(workshop, job)
    assert first.candidate.decisions not in [json.loads(record.trace)[1] for record in exported[1:]]


def test_a_task_without_a_measurement_gets_a_default(workshop, exported):
    job = untuned(workshop)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert len(exported) == 1
    assert {row.outcome for row in workshop.rows(kind="finish")} == {Outcome.OK}


def measured_elsewhere(workshop):
    """Make all that was measured so far another dataset's."""
    workshop.write(lambda session: session.execute(update(Measurement).values(kind="foreign")))


def test_what_another_dataset_found_fastest_is_measured_here_and_may_win(workshop, exported):
    known = tuned(workshop, ("w0",))
    fastest = best(workshop, known)[0]
    measured_elsewhere(workshop)
    assert best(workshop, known) == []
    job = untuned(workshop)
    finish(workshop, job)
    assert json.loads(exported[-1].trace) == [fastest.candidate.sketch, list(fastest.candidate.decisions)]
    assert best(workshop, job)[0].candidate.decisions == fastest.candidate.decisions


def test_what_was_brought_and_computes_wrong_here_does_not_win(workshop, exported, check):
    known = tuned(workshop, ("w0",))
    first, second = best(workshop, known, 2)
    check.wrong.add(next(c for c in candidates(workshop) if (c.sketch, c.decisions) == key(first)))
    measured_elsewhere(workshop)
    finish(workshop, untuned(workshop))
    assert json.loads(exported[-1].trace) == [second.candidate.sketch, list(second.candidate.decisions)]


def test_where_the_fastest_are_all_wrong_the_next_ones_and_the_defaults_get_their_chance(
    workshop, exported, check
):
    job = tuned(workshop, ("w0",))
    fastest = best(workshop, job, 5)
    guess = unpack_decisions(first_guess(workshop).decisions)
    wrong = [trial for place, trial in enumerate(fastest) if place < 3 or trial.candidate.decisions == guess]
    check.wrong |= {c for c in candidates(workshop) if (c.sketch, c.decisions) in map(key, wrong)}
    finish(workshop, job)
    right = next(trial for trial in fastest if trial not in wrong)
    assert json.loads(exported[0].trace)[1] == list(right.candidate.decisions)
    assert report(workshop, job)["search_methods"] == {proposal_method_of(right.origin): 1}
    assert len(workshop.rows(kind="finish", outcome="wrong_result")) == len(wrong) == 3


def test_a_task_that_nothing_computes_is_named_in_the_report(workshop, exported, check):
    job = tuned(workshop, ("w0",))
    check.wrong.add("all")
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert exported == []
    assert report(workshop, job)["tasks_without_winner"] == ["w0"]


@pytest.mark.parametrize(
    "error",
    [
        Unschedulable("ScheduleError: reverse-compute-at"),
        ChildFailed("IndexError", "out of bounds"),
        ChildTimeout("compiler took longer than 120 s"),
        ChildCrashed("compiler died"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_task_that_tvm_finds_no_space_for_is_named_too(workshop, exported, error):
    job = untuned(workshop)
    workshop.compiler.error = error
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert report(workshop, job)["tasks_without_winner"] == ["w0"]


def test_what_fails_in_one_of_the_passes_does_not_win_and_leaves_a_row(workshop, exported):
    job = tuned(workshop, ("w0",))
    workshop.bench.outcomes = {0: Outcome.RUN_ERROR}
    second = best(workshop, job, 2)[1]
    finish(workshop, job)
    assert json.loads(exported[0].trace)[1] == list(second.candidate.decisions)
    assert [row.slot for row in workshop.rows(kind="finish", outcome="run_error")] == [0]


def test_a_model_without_tasks_is_finished_too(workshop, exported):
    job = workshop.job(())
    workshop.plan(job)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
