"""From the last round to the export: who wins, and what is recorded. TVM's processes are made up."""

import json
import time
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from signal import Signals

import pytest
from sqlalchemy import delete, select, update

from db.measurement_codec import unpack_decisions, unpack_text
from db.repositories.job_events_and_warnings import Events
from db.repositories.jobs import Jobs
from db.repositories.leases import Leases, WorkItem
from db.repositories.rounds import Rounds
from db.repositories.tasks import Tasks
from db.repositories.trials import Trials
from db.tables import Event, Job, Measurement, Schedule
from mallorn.core.artifact_uris import scripts_uri
from mallorn.core.errors import InvalidRequest, NoDevice, Unschedulable
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, WorkKind
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.event import DoneEvent, FinishingEvent
from mallorn.core.values.graph_report import GraphReport
from mallorn.core.values.manifest import read_manifest
from searchers.base import DEFAULT, means_of
from tests.fixtures.workshop import ENDPOINT, MadeUpMeasurer
from workers.finish.contenders import TOP
from workers.finish.job_model import JobModel
from workers.finish.numeric_checker import NumericCheck
from workers.finish.run import finish
from workers.interfaces.model_compiler import Compiled, Scripts, Untuned
from workers.measure.base import Need
from workers.subprocesses.errors import ChildFailed, ChildKilled
from workers.subprocesses.shutdown import ShutdownRequested

CRASHED = ChildKilled("graphs died of SIGKILL", died_of=Signals.SIGKILL)
LATENCIES = {"before": 1000.0, "after": 980.0, "guesses": 990.0}
COMPILED = Compiled(2, 2, [], [], [], [], bytes=1, seconds=0.0)


class MadeUpVerifier:
    """Says what a test wants of each candidate; whatever it is not told of computes the right thing."""

    def __init__(self):
        self.wrong = set()
        self.asked = []

    def verify(self, program, slot):
        self.asked.append((program.key, slot.candidate))
        if slot.candidate in self.wrong or "all" in self.wrong:
            return NumericCheck(Outcome.WRONG_RESULT, "[]", 1.0, "relative error 1, allowed 0.001")
        return NumericCheck(Outcome.OK, self.trace(program, slot), 1e-7)

    def trace(self, _program, slot):
        return json.dumps([slot.sketch.key, slot.candidate.decisions])


@pytest.fixture
def check(workshop, monkeypatch):
    # So close together that each has a chance to win.
    workshop.bench.times = lambda latency_us: 10.0 + latency_us / 1e3
    verifier = MadeUpVerifier()

    @contextmanager
    def made_up(*_given):
        yield verifier

    monkeypatch.setattr("workers.finish.run.verifier", made_up)
    return verifier


@pytest.fixture
def exported(workshop, check):
    """What was handed to the process that writes the logs."""
    written = []

    def write_database(directory, target, records):
        Path(directory).mkdir()
        written.extend(records)
        return []

    workshop.graph_answers |= {
        "write_database": write_database,
        "scripts": Scripts("before", "after", "steps"),
        "compile_model": COMPILED,
        "compile_default": Untuned(1, 0.0),
        "make_inputs": [],
    }
    workshop.fleet.devices = lambda _target=None: []
    workshop.store_model()
    return written


@pytest.fixture
def inside(monkeypatch):
    """What a test wants w0 to take inside the model in one build after another, and the model."""
    figures = {"kernels": [100.0, 80.0, 90.0, 95.0], "latencies": dict(LATENCIES)}

    def kernel_times(_model, builds, beside=0):
        if isinstance(figures["kernels"], Exception):
            raise figures["kernels"]
        return [{"w0": us} for us in figures["kernels"][: len(builds)]]

    monkeypatch.setattr("workers.finish.final_schedules.where_it_runs", lambda model: model)
    monkeypatch.setattr(JobModel, "kernel_times", kernel_times)
    monkeypatch.setattr(
        JobModel,
        "latencies",
        lambda _model, builds, beside=0: {name: figures["latencies"][name] for name in builds},
    )
    return figures


def handed_out(workshop, job):
    """The tasks' latencies of the build that was exported."""
    stored = workshop.read(lambda session: Jobs(session).get(job, None))
    manifest = json.loads(Path(stored.export_uri, "manifest.json").read_text())
    return {row["task"]: row["latency_us"] for row in manifest["workloads"]}


def tuned(workshop, workloads=("w0", "w1"), trials=32, **options):
    """A job that has spent its budget."""
    job = workshop.job(workloads, trials=trials, **options)
    workshop.work(job)
    assert workshop.state(job) == JobState.FINISHING
    return job


def untuned(workshop, workloads=("w0",)):
    """A job that comes to its finish without a measurement."""
    job = workshop.job(workloads)
    workshop.plan(job)
    workshop.write(lambda session: Rounds(session).cancel_open(job))
    workshop.write(lambda session: Jobs(session).move(job, [JobState.TUNING], JobState.FINISHING))
    return job


def best(workshop, job, count=1):
    """The fastest candidates of the job's first task, as the dataset sees them."""
    first = workshop.read(lambda session: Tasks(session).list(job))[0]
    context = workshop.read(lambda session: Jobs(session).get(job, None).context_id)
    query = first.workload_id, workshop.target_id, count, context
    return workshop.read(lambda session: Trials(session).best(*query))


def promoted(workshop, job):
    query = select(Schedule).where(Schedule.job_id == job).order_by(Schedule.workload_id)
    return workshop.read(lambda session: session.scalars(query).all())


def report(workshop, job):
    found = workshop.read(lambda session: Jobs(session).get(job, None).report)
    return found and found.stored()


def test_every_task_ends_in_the_export_with_its_fastest_candidate(workshop, exported):
    job = tuned(workshop)
    fastest = best(workshop, job)[0]
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert len(exported) == 2
    assert json.loads(exported[0].trace) == [fastest.candidate.sketch, list(fastest.candidate.decisions)]
    assert len(promoted(workshop, job)) == 2
    assert report(workshop, job)["without_schedule"] == []
    stored = workshop.read(lambda session: Jobs(session).get(job, None))
    assert sorted(path.name for path in Path(stored.export_uri).iterdir()) == [
        "apply.py",
        "graphc.zip",
        "manifest.json",
        "report.json",
        "requirements.txt",
    ]


def test_the_export_pins_what_its_script_runs_with(workshop, exported):
    job = tuned(workshop)
    finish(workshop, job)
    folder = Path(workshop.read(lambda session: Jobs(session).get(job, None)).export_uri)
    pins = (folder / "requirements.txt").read_text().splitlines()[1:]
    assert {f"{name}=={version(name)}" for name in ("apache-tvm", "apache-tvm-ffi", "numpy")} <= set(pins)
    manifest = read_manifest(folder / "manifest.json")
    assert pins == [f"{name}=={found}" for name, found in manifest.versions.items() if name != "mallorn"]
    assert manifest.measured_on.host_class == ENDPOINT.host_class


def test_the_manifest_names_what_has_no_schedule(workshop, exported, check):
    job = tuned(workshop, ("w0",))
    check.wrong.add("all")
    finish(workshop, job)
    folder = Path(workshop.read(lambda session: Jobs(session).get(job, None)).export_uri)
    assert read_manifest(folder / "manifest.json").without_schedule == ["w0"]


def test_a_done_job_says_why_its_tuning_ended(workshop, exported):
    job = tuned(workshop)
    finish(workshop, job)
    assert workshop.reason(job) == "the budget of 32 trials is spent"


def test_the_report_keeps_what_more_trials_would_have_brought(workshop, exported):
    job = tuned(workshop)
    finish(workshop, job)
    ended = workshop.read(lambda session: Events(session).newest(job, FinishingEvent))
    report = workshop.read(lambda session: Jobs(session).get(job, None)).report
    assert report.outlook == ended.outlook is not None


def test_repeats_of_the_finish_cost_no_trials(workshop, exported):
    job = tuned(workshop, ("w0",))
    finish(workshop, job)
    assert report(workshop, job)["trials"] == 32
    assert len(workshop.rows(kind="finish")) == 3  # the three fastest, of which one was a first guess


def test_the_report_counts_the_tasks_by_how_their_schedules_were_found(workshop, exported):
    job = tuned(workshop, ("w0",))
    means = means_of(best(workshop, job)[0].origin)
    finish(workshop, job)
    assert report(workshop, job)["found_by"] == {means: 1}


def first_guess(workshop):
    """What a job without trials would have: the fastest of the first three defaults."""
    rows = [row for row in workshop.rows(kind="trial") if means_of(row.origin) == DEFAULT]
    first = sorted(rows, key=lambda row: (row.round_id, row.slot))[:TOP]
    return min(first, key=lambda row: row.latency_us)


def closest_rival(workshop, job):
    """The fastest but for the winner and the first guess."""
    guess = unpack_decisions(first_guess(workshop).decisions)
    return next(each for each in best(workshop, job, 3)[1:] if each.candidate.decisions != guess)


def test_a_first_guess_that_is_as_fast_once_measured_again_wins(workshop, exported):
    job = tuned(workshop, ("w0",))
    guess, as_before = first_guess(workshop), workshop.bench.times
    workshop.bench.times = lambda us: 5.0 if as_before(us) == guess.latency_us else as_before(us)
    finish(workshop, job)
    assert json.loads(exported[0].trace)[1] == list(unpack_decisions(guess.decisions))
    assert report(workshop, job)["found_by"] == {DEFAULT: 1}


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


def candidates(workshop):
    """Everything the device ever ran."""
    return list(workshop.bench.ran)


def key(trial):
    return trial.candidate.sketch, trial.candidate.decisions


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
    assert report(workshop, job)["found_by"] == {means_of(right.origin): 1}
    assert len(workshop.rows(kind="finish", outcome="wrong_result")) == len(wrong) == 3


def test_a_task_that_nothing_computes_is_named_in_the_report(workshop, exported, check):
    job = tuned(workshop, ("w0",))
    check.wrong.add("all")
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert exported == []
    assert report(workshop, job)["without_schedule"] == ["w0"]


def test_a_task_that_tvm_finds_no_space_for_is_named_too(workshop, exported):
    job = untuned(workshop)
    workshop.compiler.error = Unschedulable("ScheduleError: reverse-compute-at")
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert report(workshop, job)["without_schedule"] == ["w0"]


def test_what_fails_in_one_of_the_passes_does_not_win_and_leaves_a_row(workshop, exported):
    job = tuned(workshop, ("w0",))
    workshop.bench.outcomes = {0: Outcome.RUN_ERROR}
    second = best(workshop, job, 2)[1]
    finish(workshop, job)
    assert json.loads(exported[0].trace)[1] == list(second.candidate.decisions)
    assert [row.slot for row in workshop.rows(kind="finish", outcome="run_error")] == [0]


def test_a_finish_without_a_device_waits_in_words_and_goes_on(workshop, exported):
    job = tuned(workshop)

    def refuse(_slot):
        raise NoDevice

    workshop.bench.before = refuse
    for _ in range(4):
        finish(workshop, job)
    assert workshop.state(job) == JobState.FINISHING
    assert "mallorn device" in workshop.reason(job)
    workshop.bench.before = lambda slot: None
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert workshop.reason(job) == "the budget of 32 trials is spent"


def test_why_tuning_ended_is_known_without_the_jobs_log(workshop, exported):
    job = tuned(workshop)
    workshop.write(lambda session: session.execute(delete(Event).where(Event.job_id == job)))
    finish(workshop, job)
    assert workshop.reason(job) == "the budget of 32 trials is spent"


def test_a_stopping_worker_leaves_the_finish_to_another(workshop, exported):
    job = tuned(workshop)
    workshop.graph_answers["compile_model"] = ShutdownRequested()
    finish(workshop, job)
    stage = workshop.held(WorkItem(WorkKind.FINISH, job))
    assert (workshop.state(job), stage.holder, stage.losses) == (JobState.FINISHING, None, 0)
    workshop.graph_answers["compile_model"] = COMPILED
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE


def test_a_finish_whose_helper_dies_is_tried_again(workshop, exported):
    job = tuned(workshop)
    write, workshop.graph_answers["write_database"] = workshop.graph_answers["write_database"], CRASHED
    finish(workshop, job)
    assert workshop.state(job) == JobState.FINISHING
    workshop.graph_answers["write_database"] = write
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE


def test_a_job_cancelled_while_it_finishes_stays_cancelled(workshop, exported):
    job = tuned(workshop)

    def cancel(**_params):
        workshop.write(lambda session: Jobs(session).cancel(job, "ada"))
        return COMPILED

    workshop.graph_answers["compile_model"] = cancel
    finish(workshop, job)
    assert workshop.state(job) == JobState.CANCELLED
    assert report(workshop, job) is None
    last = workshop.read(lambda session: Events(session).newest(job, DoneEvent))
    assert last is None


def test_a_model_without_tasks_is_finished_too(workshop, exported):
    job = workshop.job(())
    workshop.plan(job)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE


def test_a_worker_that_lost_the_finish_stores_nothing(workshop, exported, check):
    job = tuned(workshop, ("w0",))
    claim = {"state": JobState.FINISHING, "worker": "other", "lease_sec": 60}

    def taken(slot):
        item = WorkItem(WorkKind.FINISH, job)
        held = workshop.hold(item)
        workshop.write(lambda session: Leases(session).renew(held, -1))
        workshop.write(lambda session: Jobs(session).claim_stage(job, *claim.values()))
        workshop.bench.before = lambda slot: None

    workshop.bench.before = taken
    finish(workshop, job)
    assert workshop.rows(kind="finish") == []
    assert exported == []
    assert workshop.state(job) == JobState.FINISHING
    assert len(workshop.rows()) == len(workshop.rows(kind="trial"))


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


def test_whatever_is_promoted_can_be_read_though_a_rival_is_handed_out(workshop, exported, inside):
    job = tuned(workshop, ("w0",))
    finish(workshop, job)
    schedules = promoted(workshop, job)
    assert unpack_text(schedules[0].trace) != exported[-1].trace, "a rival was handed out"
    for schedule in schedules:
        uri = scripts_uri(workshop.settings.artifacts, "w0", unpack_text(schedule.trace))
        assert Path(uri).is_file()


def test_a_rival_that_is_faster_inside_the_model_is_handed_out(workshop, exported, inside):
    job = tuned(workshop, ("w0",))
    second = closest_rival(workshop, job)
    finish(workshop, job)
    joint = report(workshop, job)["inside_the_model"]
    assert joint["tasks"] == [{"task": "w0", "before_us": 100.0, "after_us": 80.0}]
    assert joint["taken"]
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
    assert report(workshop, job)["found_by"] == {DEFAULT: 1}


def test_first_guesses_are_handed_out_where_the_whole_model_is_fastest_with_them(workshop, exported, inside):
    inside["kernels"] = [100.0, 100.0, 100.0, 100.0]
    inside["latencies"]["guesses"] = 900.0
    job = tuned(workshop, ("w0",))
    guess = first_guess(workshop)
    finish(workshop, job)
    joint = report(workshop, job)["inside_the_model"]
    assert (joint["guessed"], joint["taken"]) == (True, False)
    assert handed_out(workshop, job) == {"w0": guess.latency_us}


def test_where_a_first_guess_won_a_job_without_trials_would_have_it_too(workshop, exported, check, inside):
    inside["kernels"] = [100.0, 100.0, 100.0]
    job = tuned(workshop, ("w0",))
    (fastest,) = best(workshop, job)
    check.wrong |= {c for c in candidates(workshop) if (c.sketch, c.decisions) == key(fastest)}
    finish(workshop, job)
    assert handed_out(workshop, job) == {"w0": first_guess(workshop).latency_us}
    assert report(workshop, job)["inside_the_model"]["latency_us"] is None


def test_first_guesses_that_compute_wrong_are_not_handed_out_for_the_models_sake(
    workshop, exported, check, inside
):
    inside["kernels"] = [100.0, 100.0, 100.0, 100.0]
    inside["latencies"]["guesses"] = 900.0
    job = tuned(workshop, ("w0",))
    guess = unpack_decisions(first_guess(workshop).decisions)
    check.wrong |= {candidate for candidate in candidates(workshop) if candidate.decisions == guess}
    finish(workshop, job)
    assert not report(workshop, job)["inside_the_model"]["guessed"]
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
    assert "inside_the_model" not in report(workshop, job)
    assert handed_out(workshop, job) == {"w0": promoted(workshop, job)[0].latency_us}


def test_a_rival_that_computes_wrong_is_not_handed_out(workshop, exported, check, inside):
    job = tuned(workshop, ("w0",))
    first, second = best(workshop, job)[0], closest_rival(workshop, job)
    check.wrong |= {c for c in candidates(workshop) if (c.sketch, c.decisions) == key(second)}
    finish(workshop, job)
    assert report(workshop, job)["inside_the_model"] == {
        "tasks": [],
        "latency_us": {"before": 1000.0, "guesses": 990.0},
        "taken": False,
        "guessed": False,
        "seconds": pytest.approx(0, abs=600),
    }
    assert handed_out(workshop, job) == {"w0": first.latency_us}


def test_the_winners_stay_where_the_whole_model_is_no_faster_with_their_rivals(workshop, exported, inside):
    inside["latencies"]["after"] = 1010.0
    job = tuned(workshop, ("w0",))
    finish(workshop, job)
    assert not report(workshop, job)["inside_the_model"]["taken"]
    assert handed_out(workshop, job) == {"w0": promoted(workshop, job)[0].latency_us}


def test_a_pass_inside_the_model_that_breaks_down_costs_nothing(workshop, exported, inside):
    inside["kernels"] = ChildFailed("InternalError", "no instrument here")
    job = tuned(workshop, ("w0",))
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert "inside_the_model" not in report(workshop, job)
    assert handed_out(workshop, job) == {"w0": promoted(workshop, job)[0].latency_us}


def test_a_pass_that_would_be_long_beside_the_tuning_is_left_out(workshop, exported, inside):
    workshop.graph_answers["compile_model"] = replace(COMPILED, seconds=1e6)
    job = tuned(workshop, ("w0",))
    finish(workshop, job)
    assert "inside_the_model" not in report(workshop, job)


def test_a_report_names_who_measured_and_an_export_too(workshop, exported):
    job = tuned(workshop)
    finish(workshop, job)
    assert report(workshop, job)["measured_by"] == "made-up"
    stored = workshop.read(lambda session: Jobs(session).get(job, None))
    assert read_manifest(Path(stored.export_uri, "manifest.json")).measured_by == "made-up"


def test_what_its_measurer_cannot_do_is_left_out_of_a_finish_and_told(workshop, exported, check, monkeypatch):
    def refuse(_measurer, need):
        raise InvalidRequest(f"no device for {need.name}", hint="mallorn bench MODEL --schedules DIR")

    monkeypatch.setattr(MadeUpMeasurer, "require", refuse)
    job = tuned(workshop)
    finish(workshop, job)
    told = report(workshop, job)
    assert [(step["step"], step["why"]) for step in told["not_done"]] == [
        (Need.CHECK, "no device for CHECK"),
        (Need.TIME, "no device for TIME"),
    ]
    assert check.asked == []
    assert len(exported) == told["found"] == told["of"] == 2
    assert promoted(workshop, job) == [], "a schedule is one that was checked"
    assert not (Path(workshop.settings.artifacts) / "scripts").exists()


def ranged(workshop, job):
    """Make a job's import one of a range: each of its tasks is a point's."""
    points = [{"n": 1}, {"n": 8}]
    dynamic = Dynamic(
        ranges={"n": [1, 8]}, inputs={"x": ["n", 4]}, points=points, calls=[{"w0": 1}, {"w1": 1}]
    )
    workshop.write(lambda session: Jobs(session).record(job, graph=GraphReport(dynamic=dynamic)))


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
    stored = workshop.read(lambda session: Jobs(session).get(job, None))
    manifest = json.loads(Path(stored.export_uri, "manifest.json").read_text())
    assert [rule["upto"] for rule in manifest["dynamic"]["rules"]] == [{"n": 1}, {"n": 8}]
    assert manifest["input_shapes"] == {"x": [8, 4]}, "the largest, for whoever knows nothing of ranges"
