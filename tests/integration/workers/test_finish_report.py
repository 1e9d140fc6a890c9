"""What a finished job, its report and its export say."""

import json
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import delete

from mallorn.core.errors import InvalidRequest
from mallorn.core.states import JobState
from mallorn.core.values.event import FinishingEvent
from mallorn.core.values.manifest import read_manifest
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables import Event
from mallorn.searchers.base import proposal_method_of
from mallorn.workers.measure.measurer_interface import Need
from mallorn.workers.subprocesses.errors import ChildFailed
from tests.fixtures.finishing import (
    COMPILED,
    best,
    export_of,
    promoted,
    ranged,
    report,
)
from tests.fixtures.tuned_jobs import finished, tuned
from tests.fixtures.work import finish
from tests.fixtures.workshop import ENDPOINT, MadeUpMeasurer


def test_the_export_pins_what_its_script_runs_with(workshop, exported):
    job = finished(workshop)
    folder = export_of(workshop, job)
    pins = (folder / "requirements.txt").read_text().splitlines()[1:]
    assert {f"{name}=={version(name)}" for name in ("apache-tvm", "apache-tvm-ffi", "numpy")} <= set(pins)
    manifest = read_manifest(folder / "manifest.json")
    assert pins == [f"{name}=={found}" for name, found in manifest.versions.items() if name != "mallorn"]
    assert manifest.measured_on.host_class == ENDPOINT.host_class


def test_the_manifest_names_what_has_no_schedule(workshop, exported, check):
    job = tuned(workshop, ("w0",))
    check.wrong.add("all")
    finish(workshop, job)
    assert read_manifest(export_of(workshop, job) / "manifest.json").without_schedule == ["w0"]


def test_a_done_job_says_why_its_tuning_ended(workshop, exported):
    job = finished(workshop)
    assert workshop.explanation(job) == "the budget of 32 trials is spent"


def test_the_report_keeps_what_more_trials_would_have_brought(workshop, exported):
    job = finished(workshop)
    ended = workshop.read(lambda session: Events(session).newest(job, FinishingEvent))
    report = workshop.read(lambda session: Jobs(session).get(job, None)).report
    assert report.outlook == ended.outlook is not None


def test_repeats_of_the_finish_cost_no_trials(workshop, exported):
    job = finished(workshop, ("w0",))
    assert report(workshop, job)["trials"] == 32
    assert len(workshop.rows(kind="finish")) == 3  # the three fastest, of which one was a first guess


def test_the_report_counts_the_tasks_by_how_their_schedules_were_found(workshop, exported):
    job = tuned(workshop, ("w0",))
    means = proposal_method_of(best(workshop, job)[0].origin)
    finish(workshop, job)
    assert report(workshop, job)["search_methods"] == {means: 1}


def test_why_tuning_ended_is_known_without_the_jobs_log(workshop, exported):
    job = tuned(workshop)
    workshop.write(lambda session: session.execute(delete(Event).where(Event.job_id == job)))
    finish(workshop, job)
    assert workshop.explanation(job) == "the budget of 32 trials is spent"


def test_schedules_are_kept_as_people_read_them(workshop, exported):
    job = tuned(workshop)
    finish(workshop, job)
    folder = Path(workshop.settings.artifacts) / "scripts"
    files = sorted(folder.iterdir())
    assert len(files) == 2
    assert json.loads(files[0].read_text()) == {"original": "before", "scheduled": "after", "trace": "steps"}


def test_a_schedule_that_cannot_be_printed_is_promoted_all_the_same(workshop, exported):
    workshop.graph_answers["scripts"] = ChildFailed("ValueError", "no printer")
    job = tuned(workshop)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert len(promoted(workshop, job)) == 2
    assert not (Path(workshop.settings.artifacts) / "scripts").exists()


def test_a_report_names_who_measured_and_an_export_too(workshop, exported):
    job = finished(workshop)
    assert report(workshop, job)["measured_by"] == "made-up"
    assert read_manifest(export_of(workshop, job) / "manifest.json").measured_by == "made-up"


def test_what_its_measurer_cannot_do_is_left_out_of_a_finish_and_told(workshop, exported, check, monkeypatch):
    def refuse(_measurer, need):
        raise InvalidRequest(f"no device for {need.name}", hint="mallorn bench MODEL --schedules DIR")

    monkeypatch.setattr(MadeUpMeasurer, "require", refuse)
    job = tuned(workshop)
    finish(workshop, job)
    told = report(workshop, job)
    assert [(step["step"], step["reason"]) for step in told["skipped_steps"]] == [
        (Need.CHECK, "no device for CHECK"),
        (Need.TIME, "no device for TIME"),
    ]
    assert check.asked == []
    assert len(exported) == told["schedule_count"] == told["workload_count"] == 2
    assert promoted(workshop, job) == [], "a schedule is one that was checked"
    assert not (Path(workshop.settings.artifacts) / "scripts").exists()


def test_a_range_is_compiled_and_exported_with_rules_for_every_size(workshop, exported):
    job = tuned(workshop)
    ranged(workshop, job)
    asked = []

    def compile_model(**given):
        asked.append(given["dynamic"])
        return COMPILED

    workshop.graph_answers["compile_model"] = compile_model
    finish(workshop, job)
    (dynamic,) = asked
    assert [rule.upto for rule in dynamic.rules] == [{"n": 1}, {"n": 8}]
    manifest = json.loads((export_of(workshop, job) / "manifest.json").read_text())
    assert [rule["upto"] for rule in manifest["dynamic"]["rules"]] == [{"n": 1}, {"n": 8}]
    assert manifest["input_shapes"] == {"x": [8, 4]}, "the largest, for whoever knows nothing of ranges"
