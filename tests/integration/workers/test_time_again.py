"""`mallorn bench JOB`: an ended job's export is timed again where it was measured; nothing else changes."""

from pathlib import Path

import pytest

from mallorn.core.states import JobState
from mallorn.core.values.event import BenchedEvent
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from tests.fixtures.finishing import CRASHED, report
from tests.fixtures.tuned_jobs import finished
from tests.fixtures.work import finish


@pytest.fixture
def job(workshop, answers):
    return finished(workshop)


def bench(workshop, job):
    def ask(session):
        assert Jobs(session).move_to_state(job, [JobState.DONE], JobState.FINISHING)
        Jobs(session).store_report_columns(job, is_bench=True)

    workshop.write(ask)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    return workshop.read(lambda session: Events(session).newest(job, BenchedEvent))


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
    assert set(result.report.latency_us) >= {"tuned", "onnxruntime"}
    assert result.report.conditions is not None
    assert report(workshop, job) == before


def test_the_worker_writes_the_exports_records_where_its_child_does_not_write(workshop, job):
    folders = []

    def compile_model(schedules_dir, out_so, **_params):
        folders.append((Path(schedules_dir), Path(out_so).parent))
        return workshop.graph_answers["compiled"]

    workshop.graph_answers |= {
        "compiled": workshop.graph_answers["compile_model"],
        "compile_model": compile_model,
    }
    bench(workshop, job)
    [(records, compiler_folder)] = folders
    assert not records.is_relative_to(compiler_folder)


def test_what_fails_is_part_of_the_result_and_the_job_stays_done(workshop, job):
    workshop.graph_answers["compile_model"] = CRASHED
    result = bench(workshop, job).report
    assert result.latency_us == {}
    assert [step.step for step in result.skipped_steps] == ["compile the model with the exported schedules"]


def test_a_job_is_finished_in_full_again_after_it_was_timed(workshop, job, exported):
    bench(workshop, job)
    exported.clear()
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.DONE], JobState.FINISHING))
    finish(workshop, job)
    assert exported
