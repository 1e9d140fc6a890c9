"""Jobs that measure no candidates: what is known answers, by name, and nothing is promoted."""

from pathlib import Path

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState
from mallorn.core.values.manifest import read_manifest
from mallorn.costmodels.random import RandomModel
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.schedules import Schedules
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.workers.finish.numeric_check import NumericCheck
from mallorn.workers.subprocesses.errors import ChildOutOfMemory
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish


@pytest.fixture
def check(workshop, check, exported):
    """No answer needs a compiled model."""
    workshop.graph_answers["compile_model"] = ChildOutOfMemory("no memory for the model")
    return check


def asked(workshop, mode="zero-shot", workloads=("w0",), **options):
    """A job that was finished in a mode."""
    job = workshop.job(workloads, trials=0, mode=mode, **options)
    workshop.work(job)
    assert workshop.state(job) == JobState.FINISHING
    ran = len(workshop.bench.ran)
    finish(workshop, job)
    assert len(workshop.bench.ran) == ran  # nothing was timed
    assert workshop.state(job) == JobState.DONE
    return workshop.read(lambda session: Jobs(session).get(job, None))


def best(workshop, job):
    [first, *_] = workshop.read(lambda session: Tasks(session).list(job))
    return workshop.read(lambda session: Trials(session).best(first.workload_id, workshop.target_id))[0]


def test_of_an_empty_dataset_the_constructor_answers(workshop, check):
    job = asked(workshop, workloads=("w0", "w1"))
    assert {
        name: (each.source, each.confidence) for name, each in job.report.unmeasured_schedules.items()
    } == {
        "w0": ("constructed", "guessed"),
        "w1": ("constructed", "guessed"),
    }
    assert (job.report.schedule_count, job.report.workload_count, job.report.skipped_steps) == (2, 2, [])


def test_zero_shot_builds_and_times_nothing_and_says_so(workshop, check):
    job = asked(workshop)
    assert check.asked == []
    assert not job.report.unmeasured_schedules["w0"].is_verified
    assert (job.report.tasks_us, job.report.latency_us) == ({}, {})
    manifest = read_manifest(Path(job.export_uri) / "manifest.json")
    assert (manifest.mode, manifest.workloads[0].max_error) == ("zero-shot", None)


def test_what_was_measured_of_the_same_workload_answers_first(workshop, check):
    before = tuned(workshop, ("w0",), trials=16)
    [answer] = asked(workshop).report.unmeasured_schedules.values()
    assert (answer.source, answer.confidence) == ("same", "measured")
    assert answer.expected_us == pytest.approx(best(workshop, before).latency_us)


def test_then_the_schedule_of_the_nearest_sizes_is_carried(workshop, check):
    tuned(workshop, ("w9",), trials=16)
    [answer] = asked(workshop).report.unmeasured_schedules.values()
    assert (answer.source, answer.confidence, answer.expected_us) == ("near", "likely", None)
    assert "1.0 times apart" in answer.basis


def test_then_a_base_of_the_target(workshop, check):
    new = NewCostModel("base:matmul", workshop.target_id, "random", 0, 77, {}, RandomModel().save())
    workshop.write(lambda session: CostModels(session).add(new))
    [answer] = asked(workshop).report.unmeasured_schedules.values()
    assert (answer.source, answer.confidence) == ("learned", "likely")
    assert "base:matmul/random@1" in answer.basis


def test_a_model_of_the_machine_that_a_job_asks_for_comes_before_the_constructor(workshop, check):
    job = asked(workshop, cost_model="draft", search="evolutionary")
    [answer] = job.report.unmeasured_schedules.values()
    assert (answer.source, answer.confidence, answer.expected_us) == ("modelled", "guessed", None)
    assert "what draft expects" in answer.basis
    assert "evolutionary found" in answer.basis


def test_one_shot_checks_what_it_hands_out_and_takes_the_next_where_it_is_wrong(workshop, check):
    tuned(workshop, ("w0",), trials=16)
    first = asked(workshop, "one-shot")
    assert first.report.unmeasured_schedules["w0"].is_verified
    check.wrong = {check.asked[-1][1]}
    asked(workshop, "one-shot")
    assert check.asked[-2][1] in check.wrong
    assert check.asked[-1][1] not in check.wrong


def test_a_task_without_a_right_answer_has_none(workshop, check):
    tuned(workshop, ("w0",), trials=16)
    check.verify = lambda _program, _slot: NumericCheck(Outcome.WRONG_RESULT, "[]", 1.0, "wrong")
    report = asked(workshop, "one-shot").report
    assert (report.unmeasured_schedules, report.unscheduled_workloads, report.schedule_count) == (
        {},
        ["w0"],
        0,
    )


def test_nothing_that_was_not_timed_is_promoted(workshop, check):
    job = asked(workshop, "one-shot")
    assert workshop.read(lambda session: Schedules(session).page("ada").items) == []
    assert workshop.rows(job_id=job.id) == []
