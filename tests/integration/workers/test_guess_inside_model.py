"""A job without trials is decided inside the whole model: checked and exported as a whole, then refined."""

from contextlib import nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import ClassVar

import pytest
from sqlalchemy import select

from mallorn.core.states import JobState
from mallorn.core.values.event import ExportedEvent
from mallorn.core.values.manifest import UNTIMED_SEC, read_manifest
from mallorn.db.measurement_codec import unpack_decisions
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables import Context, Measurement
from mallorn.workers.finish.job_model import JobModel
from mallorn.workers.measure.tracked_devices import TrackedDevice
from mallorn.workers.subprocesses.errors import ChildFailed, ChildOutOfMemory
from mallorn.workers.whole_model.engines import TUNED
from tests.fixtures.finishing import COMPILED, MadeUpEngines, export_of, handed_out, promoted, report
from tests.fixtures.work import finish
from tests.fixtures.workshop import ENDPOINT


class Inside(MadeUpEngines):
    """Engines in which w1 takes next to nothing."""

    kernels_us: ClassVar[dict[str, float]] = {}
    model_us: ClassVar[dict[str, float]] = {}

    def kernel_times(self, _seconds):
        builds = {name: "first" if name == TUNED else name for name in self.names}
        return {name: {"w0": self.kernels_us[build], "w1": 0.1} for name, build in builds.items()}


@pytest.fixture
def model(workshop, exported, check, monkeypatch, engines_told):
    """What the engines tell; the second guess of w0 is the fastest inside the model."""
    figures = type("Figures", (Inside,), {})
    figures.kernels_us = {"first": 100.0, "rivals-1": 80.0, "rivals-2": 90.0}
    figures.model_us = {"tuned": 1000.0, "onnxruntime": 1250.0, "before": 1000.0, "after": 900.0}
    monkeypatch.setattr("mallorn.workers.finish.build_final_schedules.Engines", figures)
    monkeypatch.setattr("mallorn.workers.finish.job_model.Engines", figures)
    monkeypatch.setattr("mallorn.workers.finish.decide.place_on_device", lambda model: model)
    workshop.fleet.devices = lambda _target=None: [TrackedDevice("bench", "", False, ENDPOINT)]
    monkeypatch.setattr("mallorn.workers.finish.run.ensure_machine", lambda *_: None)
    monkeypatch.setattr("mallorn.workers.finish.run.compare_and_time_engines", lambda *_: None)
    return figures


@pytest.fixture
def built(monkeypatch):
    """The name and the winners of each model that is built."""
    models, build = [], JobModel.build
    monkeypatch.setattr(JobModel, "build", lambda *given: models.append(given[1:3]) or build(*given))
    return models


def guessed(workshop, workloads=("w0", "w1"), **options):
    job = workshop.job(workloads, trials=0, **options)
    workshop.work(job)
    ran = len(workshop.bench.ran)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    return job, len(workshop.bench.ran) - ran


def test_the_guess_that_is_fastest_inside_is_handed_out_and_no_candidate_is_timed_alone(workshop, model):
    job, timed_alone = guessed(workshop)
    assert timed_alone == 0
    assert handed_out(workshop, job) == {"w0": 80.0, "w1": 0.05}  # of one of its two calls
    assert report(workshop, job)["tasks_us"] == {"w0": 80.0, "w1": 0.05}


def test_the_likeliest_guesses_are_kept_where_the_whole_model_is_not_faster(workshop, exported, model):
    model.model_us["after"] = 1001.0
    job, _ = guessed(workshop)
    assert handed_out(workshop, job)["w0"] == 100.0
    # Its records were written before it was timed.
    assert [record.run_secs for record in exported[-2:]] == [[pytest.approx(100e-6)], [pytest.approx(5e-8)]]
    assert not report(workshop, job)["model_contests"]["uses_replacements"]


def test_the_report_tells_what_the_other_guesses_earned(workshop, model):
    job, _ = guessed(workshop)
    inside = report(workshop, job)["model_contests"]
    assert inside["uses_replacements"]
    assert (inside["latency_us"]["before"], inside["latency_us"]["after"]) == (1000.0, 900.0)
    assert inside["tasks"] == [{"task": "w0", "before_us": 100.0, "after_us": 80.0}]
    assert inside["seconds"] >= 0


def test_what_takes_next_to_nothing_keeps_its_likeliest_guess(workshop, model, built):
    guessed(workshop)
    slots = {
        name: {each.slot for _, row in built for each in row if each.contest.task.name == name}
        for name in ("w0", "w1")
    }
    assert slots == {"w0": {0, 1, 2}, "w1": {0}}


def test_a_first_export_is_exported_before_anything_is_refined(workshop, model):
    job, _ = guessed(workshop)
    told = workshop.read(lambda session: Events(session).newest(job, ExportedEvent))
    assert told.seconds >= 0
    assert told.latency_ratio == 0.8
    assert (export_of(workshop, job) / "manifest.json").exists()


def test_beside_onnxruntime_it_is_not_timed_where_its_device_is_elsewhere(workshop, model, monkeypatch):
    monkeypatch.setattr(
        "mallorn.workers.finish.decide.place_on_device",
        lambda model: replace(model, whole_model=replace(model.whole_model, device_pool=object())),
    )
    job, _ = guessed(workshop)
    assert workshop.read(lambda session: Events(session).newest(job, ExportedEvent)).latency_ratio is None


def test_times_inside_the_model_are_kept_in_a_context_of_their_own(workshop, model):
    job, _ = guessed(workshop)
    query = select(Measurement.latency_us, Context.evaluator).join(Context).where(Measurement.job_id == job)
    rows = workshop.read(lambda session: session.execute(query).all())
    assert sorted(row.latency_us for row in rows) == pytest.approx([0.05, 80.0])
    assert {row.evaluator["cache"] for row in rows} == {"model"}


def test_its_schedules_are_promoted_with_the_error_of_the_whole_model(workshop, model):
    job, _ = guessed(workshop)
    # No more than the first export is off, and what was joined of the first export.
    assert [each.max_error for each in promoted(workshop, job)] == [2e-7, 2e-7]


def test_joined_guesses_that_compute_something_else_are_neither_timed_nor_handed_out(workshop, model):
    def errors(engines, of):
        return {name: 1.0 if of == "after" else 1e-7 for name in engines.names if name != of}

    model.errors = errors
    job, _ = guessed(workshop)
    assert handed_out(workshop, job)["w0"] == 100.0
    inside = report(workshop, job)["model_contests"]
    assert (inside["uses_replacements"], inside["latency_us"]) == (False, None)
    assert [each.max_error for each in promoted(workshop, job)] == [1e-7, 1e-7]


@pytest.mark.parametrize("error", [1.0, inf])
def test_each_task_is_decided_alone_where_the_model_computes_something_else(workshop, model, error):
    model.error = error
    job, timed_alone = guessed(workshop, ("w0",))
    assert timed_alone > 0
    assert report(workshop, job)["schedule_count"] == 2  # as the compiled model counts


def test_each_task_is_decided_alone_where_nothing_else_computes_the_model(workshop, model):
    model.errors = lambda _self, _of: {}
    _, timed_alone = guessed(workshop, ("w0",))
    assert timed_alone > 0


def test_each_task_is_decided_alone_where_the_host_has_no_memory_for_the_model(workshop, model):
    workshop.graph_answers["compile_model"] = ChildOutOfMemory("no memory for the model")
    _, timed_alone = guessed(workshop, ("w0",))
    assert timed_alone > 0


def test_the_first_export_is_handed_out_where_the_others_do_not_compile(workshop, model, monkeypatch):
    build = JobModel.build

    def built(job_model, name, winners):
        if name != "first":
            raise ChildFailed("graphs", "no time for it")
        return build(job_model, name, winners)

    monkeypatch.setattr(JobModel, "build", built)
    job, _ = guessed(workshop)
    assert handed_out(workshop, job)["w0"] == 100.0  # as it was timed when it was checked
    assert report(workshop, job)["tasks_us"]["w0"] == 100.0
    assert [row.latency_us for row in workshop.rows(job_id=job)] == pytest.approx([100.0, 0.05])
    [left] = report(workshop, job)["skipped_steps"][:1]
    assert left["step"] == "compare rival schedules inside the whole model"


def test_a_job_may_be_cancelled_with_its_first_export(workshop, model, monkeypatch):
    exported = []
    monkeypatch.setattr(
        "mallorn.workers.finish.decide.keep_fastest_inside",
        lambda bench, _first: exported.append(
            workshop.read(lambda session: Jobs(session).get(bench.stage.job.id, None).export_uri)
        ),
    )
    guessed(workshop)
    assert exported[0]


def test_the_report_tells_where_the_time_went(workshop, model):
    job, _ = guessed(workshop)
    seconds = report(workshop, job)["seconds"]
    assert {
        "import",
        "probe",
        "propose",
        "build",
        "check",
        "export",
        "time",
        "compare",
        "rest",
    } <= seconds.keys()
    assert all(step["wall"] >= 0 for step in seconds.values())
    assert seconds["build"]["processor"] >= 0


def test_what_was_decided_inside_a_model_is_not_decided_again(workshop, model, built):
    guessed(workshop)
    built.clear()
    again, _ = guessed(workshop)
    assert [name for name, _ in built] == ["first"]
    assert handed_out(workshop, again) == {"w0": 100.0, "w1": 0.05}  # as it was timed this time
    assert report(workshop, again)["search_methods"] == {"default": 2}
    told = workshop.read(lambda session: Events(session).newest(again, ExportedEvent))
    assert told.latency_ratio is None  # what is compared in a moment is not timed before


@pytest.fixture
def compiled(workshop):
    """The names of the libraries that are compiled, in order; each is written."""

    def compile_model(model_path, schedules_dir, target, recipe, out_so, input_shapes, dynamic=None, **_):
        names.append(Path(out_so).name)
        return replace(COMPILED, bytes=Path(out_so).write_bytes(b"machine code"))

    names: list[str] = []
    workshop.graph_answers["compile_model"] = compile_model
    return names


def test_what_a_job_ended_with_is_not_compiled_for_the_next(workshop, model, compiled):
    guessed(workshop)
    assert compiled == ["first.so", "rivals-1.so", "rivals-2.so", "joined.so"]
    del workshop.graph_answers["import_ahead"]  # nothing asks for it
    guessed(workshop)
    assert compiled[4:] == []


def test_the_library_of_a_private_job_is_not_kept_for_others(workshop, model, compiled):
    job, _ = guessed(workshop, private=True)
    assert handed_out(workshop, job)["w0"] == 80.0
    assert not list(workshop.settings.data_dir.glob("libraries/**/*.so"))


def test_what_another_builder_compiled_is_compiled_anew(workshop, model, compiled, monkeypatch):
    guessed(workshop)
    compiled.clear()
    monkeypatch.setattr(
        "mallorn.workers.host.code_digest.code_parts", lambda: {"linker": "ld, installed later"}
    )
    guessed(workshop)
    assert "first.so" in compiled


def test_a_kept_library_that_computes_something_else_is_not_taken_again(workshop, model, compiled):
    model.model_us["after"] = 1001.0  # the likeliest guesses are kept
    guessed(workshop)
    compiled.clear()
    libraries = list((workshop.settings.data_dir / "libraries").glob("*/*"))
    assert len(libraries) == 1
    model.error = 1.0
    guessed(workshop)
    assert "first.so" not in compiled  # it was taken
    assert not libraries[0].exists()


@pytest.fixture
def unseen(model):
    """No clock sees the kernel of w1, whatever build it is in."""
    seen = model.kernel_times

    def kernel_times(self, seconds):
        return {name: {"w0": times["w0"]} for name, times in seen(self, seconds).items()}

    model.kernel_times = kernel_times


def test_a_schedule_whose_kernel_no_clock_saw_is_exported_without_a_time(workshop, exported, unseen):
    job, _ = guessed(workshop)
    assert handed_out(workshop, job) == {"w0": 80.0, "w1": None}
    told = report(workshop, job)
    assert (told["tasks_us"], told["untimed_tasks"]) == ({"w0": 80.0}, ["w1"])
    assert [row.latency_us for row in workshop.rows(job_id=job)] == [80.0]
    assert [each.latency_us for each in promoted(workshop, job)] == [80.0]
    # TVM's record needs a time: it is one that nobody takes for a measured one.
    assert [record.run_secs for record in exported[-2:]] == [[pytest.approx(80e-6)], [UNTIMED_SEC]]


def test_a_kernel_that_takes_no_time_has_none(workshop, model):
    model.kernel_times = lambda self, _: {name: {"w0": 0.0} for name in self.names}
    job, _ = guessed(workshop)
    assert workshop.rows(job_id=job) == []
    assert report(workshop, job)["untimed_tasks"] == ["w0", "w1"]


def test_an_export_says_under_which_conditions_its_times_were_taken(workshop, model):
    job, _ = guessed(workshop)
    measured_on = read_manifest(export_of(workshop, job) / "manifest.json").measured_on
    assert measured_on.evaluator == inside_contexts(workshop)[0].evaluator
    assert measured_on.host_class == ENDPOINT.host_class


def inside_contexts(workshop):
    rows = workshop.read(lambda session: session.scalars(select(Context).order_by(Context.id)).all())
    return [row for row in rows if row.evaluator.get("cache") == "model"]


def test_each_model_has_a_context_of_its_own(workshop, model):
    guessed(workshop)
    guessed(workshop, input_shapes={"x": [1, 4]})
    first, second = inside_contexts(workshop)
    assert first.evaluator["model"] != second.evaluator["model"]


def test_what_won_inside_another_model_is_a_guess_that_is_timed_like_the_others(workshop, model, built):
    guessed(workshop)  # the second guess of w0 won
    built.clear()
    model.kernels_us = {"first": 100.0, "rivals-1": 80.0, "rivals-2": 90.0}
    other, _ = guessed(workshop, input_shapes={"x": [1, 4]})
    winner, *others = [row[0].contest.slots[row[0].slot].candidate for _, row in built[:3]]
    assert len({winner, *others}) == 3
    assert handed_out(workshop, other)["w0"] == 80.0, "what was lucky elsewhere has lost here"
    before = workshop.rows(kind="finish")[0]
    assert winner.decisions == unpack_decisions(before.decisions), "it is the likeliest here"


def test_private_jobs_do_not_name_their_model_to_others(workshop, model):
    guessed(workshop)
    guessed(workshop, private=True)
    public, private = inside_contexts(workshop)
    assert public.evaluator["model"] != private.evaluator["model"]


def test_a_model_without_a_place_for_a_schedule_is_not_timed(workshop, model):
    workshop.graph_answers["compile_model"] = replace(COMPILED, found=1, missing=["w1"])
    job, _ = guessed(workshop)
    told = report(workshop, job)
    assert "model_contests" not in told
    inside = {each.id for each in inside_contexts(workshop)}
    assert not inside & {row.context_id for row in workshop.rows(job_id=job)}
    [step] = [each for each in told["skipped_steps"] if each["step"] == "compile the tuned model"]
    assert step["reason"].endswith("does not contain these tasks: w1")
    assert not list(workshop.settings.data_dir.glob("libraries/**/*.so"))


def test_times_are_stored_as_those_of_the_host_that_took_them(workshop, model):
    far = replace(ENDPOINT, name="far", host_id="far", host_class="another")
    devices = [TrackedDevice("far", "", False, far), TrackedDevice("bench", "", False, ENDPOINT)]
    workshop.fleet.devices = lambda _target=None: devices
    job = workshop.job(("w0",), trials=0)
    workshop.work(job)
    workshop.write(
        lambda session: Jobs(session).store_report_columns(job, context_id=None)
    )  # no device was there yet
    finish(workshop, job)
    assert [each.host_class for each in inside_contexts(workshop)] == [ENDPOINT.host_class]


@pytest.mark.parametrize(("joined_us", "bound_us"), [(900.0, 80.0), (1001.0, 100.0)])
def test_times_that_were_taken_while_other_work_went_on_are_upper_bounds(
    workshop, model, monkeypatch, joined_us, bound_us
):
    model.model_us["after"] = joined_us
    monkeypatch.setattr(JobModel, "lock_host_for_timing", lambda _model: nullcontext(False))
    job, _ = guessed(workshop)
    rows = workshop.rows(job_id=job)
    assert {row.latency_us for row in rows} == {None}
    assert [row.bound_us for row in rows] == pytest.approx([bound_us, 0.05])
    told = report(workshop, job)["conditions"]
    assert (told["steady"], told["note"]) == (False, "The times of 2 of 2 winners were only upper bounds.")


def test_a_job_without_trials_may_look_for_schedules_under_load_too(workshop, model, monkeypatch):
    monkeypatch.setattr("mallorn.workers.finish.choose_under_load.require_local_device", lambda _model: True)
    monkeypatch.setattr("mallorn.workers.finish.job_model.run_load_programs", nullcontext)
    model.kernels_us |= {"joined": 80.0, "versions-1": 50.0, "versions-2": 90.0}
    model.model_us |= {"alone": 1000.0, "loaded": 700.0}
    job, timed_alone = guessed(workshop, contention=True)
    assert timed_alone == 0
    assert handed_out(workshop, job)["w0"] == 80.0
    found = report(workshop, job)["contention"]
    assert found["tasks"] == [{"task": "w0", "before_us": 80.0, "after_us": 50.0}]
    assert found["min_programs"] == 0
