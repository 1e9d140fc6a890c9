"""A finish tells what trials closed of each gap to the machine's limit, and foretells it without any."""

import pytest

from mallorn.core.values.finish_report import ModelLatency
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.db.repositories.jobs import Jobs
from mallorn.workers.finish.predict_tuning_gain import TRIAL_SEC, TRIALS
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish

HERE = assume_typical_cpu(cores=2, lanes=8).model_copy(update={"measured": True})
RUN = {"tuned": ModelLatency(median=1000.0, low=990.0, high=1010.0)}


@pytest.fixture
def machine(workshop, exported, monkeypatch):
    """What is known of the device's; the model is timed."""
    monkeypatch.setattr("mallorn.workers.finish.run.ensure_machine", lambda *_: None)

    def compare(_model, _tuned, _step_log, report):
        report.latency_us = RUN

    monkeypatch.setattr("mallorn.workers.finish.run.compare_and_time_engines", compare)
    for module in ("predict_tuning_gain", "run"):
        monkeypatch.setattr(f"mallorn.workers.finish.{module}.load_measured_machine", lambda *_: HERE)


def ended(workshop, job):
    finish(workshop, job)
    return workshop.read(lambda session: Jobs(session).get(job, None)).report


def without_trials(workshop):
    job = workshop.job(("w0",), trials=0)
    workshop.work(job)
    return ended(workshop, job)


def test_a_job_with_trials_tells_what_they_closed_of_each_task_and_foretells_nothing(workshop, machine):
    report = ended(workshop, tuned(workshop))
    assert [gap.operator for gap in report.gaps] == ["matmul", "matmul"]
    assert all(gap.closed_gap <= gap.initial_gap for gap in report.gaps)
    assert report.tuning_gain is None


def test_a_first_job_without_trials_knows_other_machines_alone(workshop, machine):
    gain = without_trials(workshop).tuning_gain
    assert gain.unseen_operators == ["matmul"]
    assert gain.tasks == ["w0"]
    assert gain.seconds == TRIALS * TRIAL_SEC


def test_the_next_one_knows_what_trials_brought_here(workshop, machine):
    before = ended(workshop, tuned(workshop))
    report = without_trials(workshop)
    assert report.gaps == []
    assert report.tuning_gain.unseen_operators == []
    assert report.tuning_gain.seconds != TRIALS * TRIAL_SEC, "its pace is that of this host"
    assert before.trials >= 10 * len(before.gaps)


def test_what_is_private_tells_nobody_else(workshop, machine):
    ended(workshop, tuned(workshop, private=True))
    assert without_trials(workshop).tuning_gain.unseen_operators == ["matmul"]


def test_too_few_trials_do_not_show_where_they_end(workshop, machine):
    ended(workshop, tuned(workshop, trials=8))
    assert without_trials(workshop).tuning_gain.unseen_operators == ["matmul"]


def test_what_was_answered_without_a_time_foretells_nothing(workshop, machine):
    job = workshop.job(("w0",), trials=0, mode="one-shot")
    workshop.work(job)
    report = ended(workshop, job)
    assert (report.tuning_gain, report.gaps) == (None, [])


def test_a_machine_that_was_measured_beside_other_programs_foretells_nothing(workshop, machine, monkeypatch):
    busy = HERE.model_copy(update={"disturbed": True})
    monkeypatch.setattr("mallorn.workers.finish.predict_tuning_gain.load_measured_machine", lambda *_: busy)
    assert without_trials(workshop).tuning_gain is None


def test_a_machine_that_nobody_measured_foretells_nothing(workshop, machine, monkeypatch):
    monkeypatch.setattr("mallorn.workers.finish.predict_tuning_gain.load_measured_machine", lambda *_: None)
    assert without_trials(workshop).tuning_gain is None
