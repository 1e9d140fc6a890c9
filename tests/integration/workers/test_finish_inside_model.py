"""Close contests go by what the whole model takes."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from mallorn.core.artifact_uris import scripts_uri
from mallorn.core.states import JobState
from mallorn.db.measurement_codec import unpack_decisions, unpack_text
from mallorn.db.tables import Job
from mallorn.searchers.base import DEFAULT
from mallorn.workers.subprocesses.errors import ChildFailed
from tests.fixtures.finishing import (
    COMPILED,
    best,
    candidates,
    first_guess,
    handed_out,
    key,
    promoted,
    ranged,
    report,
)
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish


def closest_rival(workshop, job):
    """The fastest but for the winner and the first guess."""
    guess = unpack_decisions(first_guess(workshop).decisions)
    return next(each for each in best(workshop, job, 3)[1:] if each.candidate.decisions != guess)


def test_whatever_is_promoted_can_be_read_though_a_rival_is_handed_out(workshop, exported, inside):
    job = tuned(workshop, ("w0",))
    finish(workshop, job)
    schedules = promoted(workshop, job)
    assert unpack_text(schedules[0].trace) != exported[-1].trace, "a rival was handed out"
    for schedule in schedules:
        uri = scripts_uri(workshop.settings.artifacts, "ada", "w0", unpack_text(schedule.trace))
        assert Path(uri).is_file()


def test_a_rival_that_is_faster_inside_the_model_is_handed_out(workshop, exported, inside):
    job = tuned(workshop, ("w0",))
    second = closest_rival(workshop, job)
    finish(workshop, job)
    joint = report(workshop, job)["model_contests"]
    assert joint["tasks"] == [{"task": "w0", "before_us": 100.0, "after_us": 80.0}]
    assert joint["uses_replacements"]
    assert json.loads(exported[-1].trace)[1] == list(second.candidate.decisions)
    assert handed_out(workshop, job) == {"w0": second.latency_us}


def test_a_first_guess_that_is_faster_inside_the_model_is_handed_out_however_slow_it_was_alone(
    workshop, exported, check, inside
):
    job = tuned(workshop, ("w0",))
    guess, close = first_guess(workshop), workshop.bench.times
    workshop.bench.times = lambda us: 99.0 if close(us) == guess.latency_us else close(us)
    inside["kernels"] = [100.0, 99.0, 80.0]  # the winner, a rival, the first guess
    finish(workshop, job)
    assert json.loads(exported[-1].trace)[1] == list(unpack_decisions(guess.decisions))
    assert handed_out(workshop, job) == {"w0": 99.0}
    assert report(workshop, job)["search_methods"] == {DEFAULT: 1}


def test_first_guesses_are_handed_out_where_the_whole_model_is_fastest_with_them(workshop, exported, inside):
    inside["kernels"] = [100.0, 100.0, 100.0, 100.0]
    inside["latencies"]["guesses"] = 900.0
    job = tuned(workshop, ("w0",))
    guess = first_guess(workshop)
    finish(workshop, job)
    joint = report(workshop, job)["model_contests"]
    assert (joint["uses_guesses"], joint["uses_replacements"]) == (True, False)
    assert handed_out(workshop, job) == {"w0": guess.latency_us}


def test_where_a_first_guess_won_a_job_without_trials_would_have_it_too(workshop, exported, check, inside):
    inside["kernels"] = [100.0, 100.0, 100.0]
    job = tuned(workshop, ("w0",))
    (fastest,) = best(workshop, job)
    check.wrong |= {c for c in candidates(workshop) if (c.sketch, c.decisions) == key(fastest)}
    finish(workshop, job)
    assert handed_out(workshop, job) == {"w0": first_guess(workshop).latency_us}
    assert report(workshop, job)["model_contests"]["latency_us"] is None


def test_first_guesses_that_compute_wrong_are_not_handed_out_for_the_models_sake(
    workshop, exported, check, inside
):
    inside["kernels"] = [100.0, 100.0, 100.0, 100.0]
    inside["latencies"]["guesses"] = 900.0
    job = tuned(workshop, ("w0",))
    guess = unpack_decisions(first_guess(workshop).decisions)
    check.wrong |= {candidate for candidate in candidates(workshop) if candidate.decisions == guess}
    finish(workshop, job)
    assert not report(workshop, job)["model_contests"]["uses_guesses"]
    assert handed_out(workshop, job) == {"w0": promoted(workshop, job)[0].latency_us}


def test_first_guesses_are_tried_inside_where_rivals_would_take_too_long(workshop, exported, inside):
    workshop.graph_answers["compile_model"] = replace(COMPILED, seconds=40.0)
    job = tuned(workshop, ("w0",))
    started = time.time() - 100.0
    workshop.write(lambda session: session.execute(update(Job).values(started_at=started)))
    guess = first_guess(workshop)
    finish(workshop, job)
    assert json.loads(exported[-1].trace)[1] == list(unpack_decisions(guess.decisions))


def test_a_job_may_do_without_the_pass_inside_the_model(workshop, exported, inside):
    job = tuned(workshop, ("w0",), contests="apart")
    finish(workshop, job)
    assert "model_contests" not in report(workshop, job)
    assert handed_out(workshop, job) == {"w0": promoted(workshop, job)[0].latency_us}


def test_a_job_with_a_limit_of_time_does_without_it_too(workshop, exported, inside):
    job = tuned(workshop, ("w0",))
    workshop.write(lambda session: session.execute(update(Job).values(minutes=60.0)))
    finish(workshop, job)
    assert "model_contests" not in report(workshop, job)
    assert handed_out(workshop, job) == {"w0": promoted(workshop, job)[0].latency_us}


def test_a_range_of_shapes_does_without_it_too(workshop, exported, inside):
    job = tuned(workshop)
    ranged(workshop, job)
    finish(workshop, job)
    assert "model_contests" not in report(workshop, job)


def test_a_rival_that_computes_wrong_is_not_handed_out(workshop, exported, check, inside):
    job = tuned(workshop, ("w0",))
    first, second = best(workshop, job)[0], closest_rival(workshop, job)
    check.wrong |= {c for c in candidates(workshop) if (c.sketch, c.decisions) == key(second)}
    finish(workshop, job)
    assert report(workshop, job)["model_contests"] == {
        "tasks": [],
        "latency_us": {"before": 1000.0, "guesses": 990.0},
        "uses_replacements": False,
        "uses_guesses": False,
        "seconds": pytest.approx(0, abs=600),
    }
    assert handed_out(workshop, job) == {"w0": first.latency_us}


def test_the_winners_stay_where_the_whole_model_is_no_faster_with_their_rivals(workshop, exported, inside):
    inside["latencies"]["after"] = 1010.0
    job = tuned(workshop, ("w0",))
    finish(workshop, job)
    assert not report(workshop, job)["model_contests"]["uses_replacements"]
    assert handed_out(workshop, job) == {"w0": promoted(workshop, job)[0].latency_us}


def test_a_pass_inside_the_model_that_breaks_down_costs_nothing(workshop, exported, inside):
    inside["kernels"] = ChildFailed("InternalError", "no instrument here")
    job = tuned(workshop, ("w0",))
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert "model_contests" not in report(workshop, job)
    assert handed_out(workshop, job) == {"w0": promoted(workshop, job)[0].latency_us}


def test_a_pass_that_would_be_long_beside_the_tuning_is_left_out(workshop, exported, inside):
    workshop.graph_answers["compile_model"] = replace(COMPILED, seconds=1e6)
    job = tuned(workshop, ("w0",))
    finish(workshop, job)
    assert "model_contests" not in report(workshop, job)
