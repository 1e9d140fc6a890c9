"""`mallorn bench JOB`: an ended job's export is timed again where it was measured; nothing else changes."""

from pathlib import Path

import pytest

from mallorn.core.errors import Conflict
from mallorn.core.states import JobState
from mallorn.core.values.event import BenchedEvent, BenchStartedEvent
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.workers.finish.run import finish
from tests.fixtures.finishing import CRASHED, report
from tests.fixtures.tuned_jobs import finished


@pytest.fixture
def job(workshop, answers):
    return finished(workshop)


def bench(workshop, job):
    def ask(session):
        Jobs(session).bench(job, None)
        Events(session).append(job, BenchStartedEvent())

    workshop.write(ask)
    assert workshop.state(job) == JobState.FINISHING
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    return workshop.read(lambda session: Events(session).newest(job, BenchedEvent)).result


def test_the_export_is_timed_again_with_its_conditions_and_the_report_stays(workshop, job):
    before = report(workshop, job)
    compiled_with = []

    def compile_model(schedules_dir, **_params):
        compiled_with.append({path.name: path.read_text() for path in Path(schedules_dir).iterdir()})
        return workshop.graph_answers["compiled"]

    workshop.graph_answers |= {
        "compiled": workshop.graph_answers["compile_model"],
        "compile_model": compile_model,
    }
    result = bench(workshop, job)
    [records] = compiled_with
    export = Path(workshop.read(lambda session: Jobs(session).get(job, None).export_uri))
    assert records == {name: (export / name).read_text() for name in records} != {}
    assert set(result.latency_us) >= {"tuned", "onnxruntime"}
    assert result.conditions is not None
    assert result.host_class
    assert result.built_by
    assert report(workshop, job) == before


def test_what_fails_is_part_of_the_result_and_the_job_stays_done(workshop, job):
    workshop.graph_answers["compile_model"] = CRASHED
    result = bench(workshop, job)
    assert result.latency_us == {}
    assert [step.step for step in result.skipped_steps] == ["compile the model with the exported schedules"]


def test_a_job_is_finished_in_full_again_after_it_was_timed(workshop, job, exported):
    bench(workshop, job)
    exported.clear()
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.DONE], JobState.FINISHING))
    finish(workshop, job)
    assert exported


def test_a_job_without_an_export_is_not_timed_again(workshop, job):
    workshop.write(lambda session: Jobs(session).store_report_columns(job, export_uri=None))
    with pytest.raises(Conflict, match="no exported schedules"):
        workshop.write(lambda session: Jobs(session).bench(job, None))
