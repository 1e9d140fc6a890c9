"""A whole model that does not compile: the schedule or the graph pass to blame is found and left out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from mallorn.core.states import JobState
from mallorn.core.values.graph_report import GraphReport
from mallorn.core.values.manifest import DATABASE, MANIFEST, read_manifest
from mallorn.db.measurement_codec import pack_text
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables import Workload
from mallorn.workers.host.code_digest import code_digest
from mallorn.workers.interfaces.model_compiler import Extraction
from mallorn.workers.subprocesses.errors import ChildFailed
from mallorn.workers.tvm.network.graph_recipes import TUNED, skipped_passes
from tests.fixtures.finishing import COMPILED, export_of, report
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish, import_job

NO_LOWERING = ChildFailed("InternalError", "no lowering for this")
RECIPE = TUNED


@pytest.fixture
def compiler(workshop, answers):
    """A compiler that fails with the schedule of a task, and unless some passes are left out."""

    class Compiler:
        def __init__(self):
            self.program, self.passes, self.calls = None, set(), 0

        def write_database(self, directory, target, records):
            Path(directory).mkdir()
            for name in DATABASE:
                Path(directory, name).write_text(json.dumps([record.tir for record in records]))
            return []

        def compile_model(self, schedules_dir, recipe, **_):
            self.calls += 1
            programs = json.loads(Path(schedules_dir, DATABASE[0]).read_text())
            if self.program in programs or self.passes - skipped_passes(recipe).keys():
                raise NO_LOWERING
            return replace(COMPILED, found=len(programs))

    made = Compiler()
    workshop.graph_answers |= {"write_database": made.write_database, "compile_model": made.compile_model}
    return made


def job_of(workshop, job):
    return workshop.read(lambda session: Jobs(session).get(job, None))


def tuned_by_passes(workshop):
    """A tuned job whose recipe has all passes."""
    job = tuned(workshop)
    graph = GraphReport(recipe=RECIPE, code=code_digest())
    workshop.write(lambda session: Jobs(session).store_report_columns(job, graph=graph))
    return job


def import_and_tune(workshop, job):
    """Import again what goes back to its import, with the tasks it had, and come to its finish."""
    tasks = Extraction(GraphReport(), ()).tasks

    def extract(recipe, **_):
        return Extraction(GraphReport(recipe=recipe), tasks)

    workshop.graph_answers["extract"] = extract
    assert import_job(workshop, job)
    workshop.work(job)


def test_a_schedule_with_which_the_model_does_not_compile_is_left_out(workshop, compiler):
    job = tuned(workshop)
    compiler.program = '"w0"'
    program = update(Workload).where(Workload.key == "w0").values(tir=pack_text(compiler.program))
    workshop.write(lambda session: session.execute(program))
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    told = report(workshop, job)
    assert (told["schedule_count"], told["workload_count"], told["tasks_without_winner"]) == (1, 2, ["w0"])
    assert read_manifest(export_of(workshop, job) / MANIFEST).without_schedule == ["w0"]
    (warning,) = job_of(workshop, job).warnings
    assert warning.source == "schedule of w0"
    assert "no lowering for this" in warning.message


def test_a_pass_after_which_the_model_does_not_compile_is_left_out_of_a_new_import(workshop, compiler):
    job = tuned_by_passes(workshop)
    compiler.passes = {"conv3x3_to_winograd", "fold_constant_copies"}
    finish(workshop, job)
    assert workshop.state(job) == JobState.QUEUED
    assert compiler.calls <= 30
    import_and_tune(workshop, job)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    exported = read_manifest(export_of(workshop, job) / MANIFEST).recipe
    assert skipped_passes(exported).keys() == compiler.passes
    warnings = {each.source: each.message for each in job_of(workshop, job).warnings}
    assert warnings.keys() == {f"graph pass {name}" for name in compiler.passes}
    assert all("no lowering for this" in message for message in warnings.values())


def test_a_job_whose_model_never_compiles_fails_with_the_words_of_the_compiler(workshop, compiler):
    job = tuned_by_passes(workshop)
    compiler.passes = {"relax.transform.LegalizeOps"}
    finish(workshop, job)
    assert workshop.state(job) == JobState.FAILED
    assert "no lowering for this" in workshop.explanation(job)
    assert "resume" not in workshop.explanation(job)
