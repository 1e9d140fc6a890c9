"""What an import leaves in the database. The process that reads the model is made up."""

import os
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL

import pytest
from sqlalchemy import select, update

from mallorn.client.model_upload import ModelUpload
from mallorn.core.artifact_uris import model_uri
from mallorn.core.errors import InvalidModel, Unavailable
from mallorn.core.states import JobState, StageKind, WorkKind
from mallorn.core.values.event import FailedEvent
from mallorn.core.values.graph_report import GraphReport, GraphStep
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import MAX_DEATHS, WorkItem
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.workloads import KEPT
from mallorn.db.tables import Job, StageRun
from mallorn.workers.interfaces.model_compiler import Extraction, ModelTask
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.process.leased_work import leased_work
from mallorn.workers.round.run import fix_round_inputs
from mallorn.workers.subprocesses.errors import ChildCrashed, ChildFailed, ChildTimeout
from mallorn.workers.subprocesses.shutdown import ShutdownRequested
from mallorn.workers.tvm.network.graph_recipes import TUNED, with_skipped_passes
from tests.fixtures.stored import workload_named
from tests.fixtures.work import import_job
from tests.fixtures.workshop import MODEL, QUICK
from tests.unit.children.faces import Misbehaving


def found(*keys):
    """What the importer reports of a model with these workloads."""
    work = {"op": "matmul", "structure": "s0", "flops": 1e6, "tir": "{}", "extents": (64, 64, 64)}
    tasks = tuple(
        ModelTask(key=key, name=f"fused_{key}", weight=2, args=Arguments(()), **work) for key in keys
    )
    return Extraction(GraphReport(tvm_version="0.27.0", recipe=TUNED), tasks)


@pytest.fixture
def job(workshop):
    """A job whose model waits for its import."""
    job = workshop.job(())
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.TUNING], JobState.QUEUED))
    workshop.store_model()
    return job


def tasks_of(workshop, job):
    return workshop.read(lambda session: Tasks(session).list(job))


def test_an_import_writes_tasks_and_the_recipe_that_made_them(workshop, job):
    workshop.graph_answers["extract"] = found("w0", "w1")
    assert import_job(workshop, job)
    assert [(task.name, task.weight) for task in tasks_of(workshop, job)] == [
        ("fused_w0", 2),
        ("fused_w1", 2),
    ]
    stored = workshop.read(lambda session: Jobs(session).get(job, None))
    assert (stored.state, stored.waiting_because) == (JobState.TUNING, "")
    assert stored.graph.recipe.name == "tuned"
    assert "tasks" not in stored.graph


def test_what_a_pass_raised_is_a_warning_of_every_job_that_goes_without_it(workshop, job):
    left_out = with_skipped_passes(TUNED, {"tile_transposes": "cannot run it: X"})
    step = GraphStep(name="concat_to_copies", error="it left 2 calls, because it raised Y")
    graph = GraphReport(recipe=left_out, steps=[step])
    workshop.graph_answers["extract"] = replace(found("w0"), graph=graph)
    assert import_job(workshop, job)
    workshop.graph_answers["extract"] = AssertionError("it was imported before")
    again = waiting(workshop)
    assert import_job(workshop, again)
    for each in (job, again):
        warnings = workshop.read(lambda session, each=each: Jobs(session).get(each, None)).warnings
        assert {warning.source: warning.message for warning in warnings} == {
            "graph pass concat_to_copies": step.error,
            "graph pass tile_transposes": "it is left out of this network: cannot run it: X",
        }


def waiting(workshop, **options):
    """Another job for the same model."""
    job = workshop.job((), **options)
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.TUNING], JobState.QUEUED))
    return job


def test_the_same_model_is_imported_once(workshop, job):
    workshop.graph_answers["extract"] = found("w0", "w1")
    import_job(workshop, job)
    workshop.graph_answers["extract"] = AssertionError("it was imported before")
    again = waiting(workshop)
    assert import_job(workshop, again) == again
    told = [
        [(task.name, task.weight, task.workload_id) for task in tasks_of(workshop, one)]
        for one in (job, again)
    ]
    assert told[0] == told[1]
    first, second = (workshop.read(lambda session, id=id: Jobs(session).get(id, None)) for id in (job, again))
    assert (second.state, second.graph) == (JobState.TUNING, first.graph)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"recipe": "plain"}, id="another recipe"),
        pytest.param({"input_shapes": {"x": [2, 8]}}, id="other shapes"),
        pytest.param({"private": True}, id="a private job"),
    ],
)
def test_it_is_imported_anew_for_another(workshop, job, other):
    workshop.graph_answers["extract"] = found("w0")
    import_job(workshop, job)
    workshop.graph_answers["extract"] = found("w1")
    again = waiting(workshop, **other)
    import_job(workshop, again)
    assert [task.name for task in tasks_of(workshop, again)] == ["fused_w1"]


def test_it_is_imported_anew_by_other_code_and_for_another_owner(workshop, job, monkeypatch):
    workshop.graph_answers["extract"] = found("w0")
    import_job(workshop, job)
    workshop.graph_answers["extract"] = found("w1")
    by_other_code = waiting(workshop)
    with monkeypatch.context() as changed:
        changed.setattr("mallorn.workers.model_import.run.code_digest", lambda: "other")
        import_job(workshop, by_other_code)
    workshop.write(lambda session: session.execute(update(Job).values(owner="somebody")))
    workshop.graph_answers["extract"] = found("w2")
    of_another = waiting(workshop)
    import_job(workshop, of_another)
    names = [[task.name for task in tasks_of(workshop, each)] for each in (by_other_code, of_another)]
    assert names == [["fused_w1"], ["fused_w2"]]


@pytest.mark.parametrize(
    "answer", [found("w0"), InvalidModel("torn"), ShutdownRequested(), Unavailable("no disk")]
)
def test_an_import_is_kept_for_the_timeline_however_it_ended(workshop, job, answer):
    workshop.graph_answers["extract"] = answer
    import_job(workshop, job)
    (run,) = workshop.read(lambda session: session.scalars(select(StageRun)).all())
    assert (run.job_id, run.kind, run.worker) == (job, StageKind.IMPORT, workshop.name)
    assert run.started_at <= run.finished_at


def test_a_second_import_of_a_job_adds_nothing_twice(workshop, job):
    workshop.graph_answers["extract"] = found("w0", "w1")
    import_job(workshop, job)
    first = [task.id for task in tasks_of(workshop, job)]
    assert not import_job(workshop, job), "a job that tunes already is not imported"
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.TUNING], JobState.IMPORTING))
    assert import_job(workshop, job)
    assert [task.id for task in tasks_of(workshop, job)] == first


def test_an_import_recognises_what_the_dataset_knows(workshop, job):
    workshop.work(workshop.job(("w0",), trials=8))
    workshop.graph_answers["extract"] = found("w0", "w1")
    import_job(workshop, job)
    assert [task.known_at_start for task in tasks_of(workshop, job)] == [8, 0]


def test_programs_of_a_private_job_are_kept_until_another_job_brings_them(workshop, job):
    def kept():
        return workshop.read(lambda session: workload_named(session, "w0")).kept_upto == KEPT

    hidden = workshop.job((), private=True)
    workshop.write(lambda session: Jobs(session).move_to_state(hidden, [JobState.TUNING], JobState.QUEUED))
    workshop.graph_answers["extract"] = found("w0")
    workshop.write(lambda session: Jobs(session).pause(job, "ada"))  # else it would have the first turn
    import_job(workshop, hidden)
    workshop.write(lambda session: Jobs(session).resume(job, "ada"))
    assert kept()
    import_job(workshop, job)
    assert not kept()


def test_what_a_worker_does_for_a_private_job_is_nobody_elses_business(workshop):
    item = WorkItem.for_round(workshop.next_round(workshop.job(("w0",))))

    def description():
        with leased_work(workshop, item, fix_round_inputs) as work:
            workshop.write(lambda session: Rounds(session).give_back(work.hold))
            return work.description

    assert "w0" in description()
    workshop.write(lambda session: session.execute(update(Job).values(private=True)))
    assert description() == "a round of a private job"


def test_a_model_that_cannot_be_imported_fails_the_job_in_words(workshop, job):
    workshop.graph_answers["extract"] = InvalidModel("dimension n is free", hint="--input-shape x:1,3")
    assert not import_job(workshop, job)
    assert workshop.state(job) == JobState.FAILED
    assert workshop.explanation(job).split("\n") == ["dimension n is free", "--input-shape x:1,3"]
    event = workshop.read(lambda session: Events(session).newest(job, FailedEvent))
    assert event.payload() == {
        "error": "InvalidModel",
        "detail": "dimension n is free",
        "hint": "--input-shape x:1,3",
    }


def test_what_would_help_a_refused_import_is_kept_for_whoever_tries_again(workshop, job):
    suggest = {"input_shapes": {"x": [1, 3]}}
    workshop.graph_answers["extract"] = InvalidModel("dimension n is free", suggest=suggest)
    import_job(workshop, job)
    assert workshop.read(lambda session: Jobs(session).get(job, None).suggest).to_stored_json() == suggest
    event = workshop.read(lambda session: Events(session).newest(job, FailedEvent))
    assert event.suggest.to_stored_json() == suggest


def test_what_may_pass_by_itself_is_tried_again_and_then_forgotten(workshop, job):
    workshop.graph_answers["extract"] = Unavailable("the store does not answer")
    for _ in range(5):
        assert not import_job(workshop, job)
    assert workshop.state(job) == JobState.IMPORTING
    assert workshop.explanation(job) == "the store does not answer"
    workshop.graph_answers["extract"] = found("w0")
    assert import_job(workshop, job)
    assert workshop.explanation(job) == ""


def killed_at_work(**_params):
    """A process of its own gets a SIGKILL while it works."""
    with Misbehaving(name="graphs") as child:
        call = child.begin(Misbehaving.sleep.make_call(60.0))
        os.kill(child.pid, SIGKILL)
        call.wait()


def test_a_helper_that_is_killed_costs_a_try_and_not_the_job(workshop, job):
    workshop.graph_answers["extract"] = killed_at_work
    for _ in range(4):
        assert not import_job(workshop, job)
        assert workshop.state(job) == JobState.IMPORTING
    assert "died of SIGKILL" in workshop.explanation(job)
    assert "MALLORN_BUILDERS" in workshop.explanation(job)
    workshop.graph_answers["extract"] = found("w0")
    assert import_job(workshop, job)
    assert workshop.explanation(job) == ""


@pytest.mark.parametrize("error", [ChildCrashed("graphs died of SIGSEGV"), ChildTimeout("graphs took long")])
def test_the_third_helper_that_dies_in_a_row_fails_the_job_with_its_words(workshop, job, error):
    workshop.graph_answers["extract"] = error
    for _ in range(3):
        assert not import_job(workshop, job)
    assert workshop.state(job) == JobState.FAILED
    assert workshop.explanation(job).startswith(f"importing was interrupted 3 times: {error.message}")
    event = workshop.read(lambda session: Events(session).newest(job, FailedEvent))
    assert event.detail == error.message


def test_what_the_importer_cannot_say_better_fails_the_job_as_a_matter_of_its_model(workshop, job):
    workshop.graph_answers["extract"] = ChildFailed("IndexError", "list index out of range")
    assert not import_job(workshop, job)
    assert workshop.state(job) == JobState.FAILED
    assert "TVM cannot turn this model into tasks" in workshop.explanation(job)


def test_patterns_that_no_task_has_are_refused_with_the_closest_names(workshop, job):
    only = {**workshop.read(lambda session: Jobs(session).get(job, None).options), "only": ["fused_dense*"]}
    workshop.write(lambda session: session.execute(update(Job).where(Job.id == job).values(options=only)))
    workshop.graph_answers["extract"] = found("add", "dens", "softmax")
    assert not import_job(workshop, job)
    assert workshop.state(job) == JobState.FAILED
    assert workshop.explanation(job).split("\n") == [
        "no task matches fused_dense*",
        "--only one of: fused_dens, fused_add, fused_softmax",
    ]


def test_a_stopping_worker_leaves_the_import_to_another(workshop, job):
    workshop.graph_answers["extract"] = ShutdownRequested()
    assert not import_job(workshop, job)
    stage = workshop.held(WorkItem(WorkKind.IMPORT, job))
    assert (workshop.state(job), stage.holder, stage.losses) == (JobState.IMPORTING, None, 0)
    workshop.graph_answers["extract"] = found("w0")
    assert import_job(workshop, job)


def test_a_fault_of_ours_is_shown_and_leaves_the_lease_to_run_out(workshop, job):
    workshop.graph_answers["extract"] = KeyError("surprise")
    with pytest.raises(KeyError):
        import_job(workshop, job)
    assert "surprise" in workshop.explanation(job)
    assert workshop.state(job) == JobState.IMPORTING
    assert not import_job(workshop, job), "the lease is still held"


@pytest.mark.parametrize("act", ["pause", "cancel"])
@pytest.mark.parametrize("answer", ["tasks", "an error"])
def test_a_job_that_is_stopped_while_its_model_is_read_stays_stopped(workshop, job, act, answer):
    def steer(**_params):
        workshop.write(lambda session: getattr(Jobs(session), act)(job, "ada"))
        if answer == "an error":
            raise InvalidModel("too late to matter")
        return found("w0")

    workshop.graph_answers["extract"] = steer
    assert import_job(workshop, job) is None
    assert workshop.state(job) == {"pause": JobState.PAUSED, "cancel": JobState.CANCELLED}[act]
    assert tasks_of(workshop, job) == []
    assert "owner" in workshop.explanation(job)


def test_the_import_binds_a_job_to_its_virtual_device(workshop, job):
    options = {**QUICK, "measurer": "simulated"}
    workshop.write(lambda session: session.execute(update(Job).values(options=options)))
    workshop.graph_answers["extract"] = found("w0")
    assert import_job(workshop, job)
    stored = workshop.read(lambda session: Jobs(session).get(job, None))
    context = workshop.read(lambda session: Contexts(session).get(stored.context_id))
    assert (context.host_class, context.threads) == ("simulated", 2)
    assert stored.warnings == []


def test_a_job_whose_device_is_still_to_come_is_bound_to_nothing(workshop, job):
    workshop.graph_answers["extract"] = found("w0")
    assert import_job(workshop, job)
    assert workshop.read(lambda session: Jobs(session).get(job, None)).context_id is None


def test_a_range_of_shapes_is_imported_at_its_points(workshop):
    job = workshop.job((), dynamic={"n": [1, 8]})
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.TUNING], JobState.QUEUED))
    workshop.store_model()
    asked = []

    def extract_range(**given):
        asked.append(given["bounds"])
        return found("w0")

    workshop.graph_answers["extract_range"] = extract_range
    assert import_job(workshop, job)
    assert asked == [{"n": [1, 8]}]
    assert len(tasks_of(workshop, job)) == 1


def test_a_stage_whose_job_cannot_be_read_after_its_claim_is_given_back(workshop, job, monkeypatch):
    def away(_work):
        raise Unavailable("the database does not answer")

    monkeypatch.setattr("mallorn.workers.model_import.run.stage_of", away)
    assert not import_job(workshop, job)
    held = workshop.held(WorkItem(WorkKind.IMPORT, job))
    assert (held.holder, held.losses) == (None, 0)
    assert workshop.explanation(job) == "the database does not answer"


def test_a_store_that_is_away_is_waited_for_however_long_that_takes(workshop, job):
    models = Path(workshop.settings.artifacts) / "models"
    unmounted = models.rename(models.parent / "elsewhere")
    for _ in range(MAX_DEATHS + 2):
        assert not import_job(workshop, job)
    held = workshop.held(WorkItem(WorkKind.IMPORT, job))
    assert (workshop.state(job), held.losses, held.deaths) == (JobState.IMPORTING, 0, 0)
    assert "its disk may not be mounted" in workshop.explanation(job)
    assert not workshop.has_waiting(WorkKind.IMPORT, longer_than_sec=0.0), "it waits for a while"
    unmounted.rename(models)
    workshop.graph_answers["extract"] = found("w0")
    assert import_job(workshop, job)
    assert (workshop.state(job), workshop.explanation(job)) == (JobState.TUNING, "")


def test_a_store_that_is_there_without_the_model_fails_the_job_in_words(workshop, job):
    (model,) = (Path(workshop.settings.artifacts) / "models").iterdir()
    model.unlink()
    assert not import_job(workshop, job)
    assert workshop.state(job) == JobState.FAILED
    assert workshop.explanation(job).startswith("the artifact store has no ")


def test_a_measurer_with_an_undeclared_virtual_device_is_refused(workshop, job):
    options = workshop.read(lambda session: Jobs(session).get(job, None).options)
    options |= {"measurer": "tests.fixtures.pretenders:OpenWrapper"}
    workshop.write(lambda session: session.execute(update(Job).where(Job.id == job).values(options=options)))
    workshop.graph_answers["extract"] = found("w0")
    assert not import_job(workshop, job)
    assert workshop.state(job) == JobState.FAILED
    assert "does not declare its virtual device" in workshop.explanation(job)


def with_inputs(workshop):
    """The model of all jobs comes with inputs for checks."""
    path = Path(model_uri(workshop.settings.artifacts, MODEL))
    (model := path.with_name("net.onnx")).write_bytes(b"a model")
    (samples := path.with_name("mine.npz")).write_bytes(b"arrays")
    path.write_bytes(b"".join(ModelUpload(model, (), samples).chunks()))


def test_inputs_that_the_model_does_not_take_fail_the_job_at_once(workshop, job):
    with_inputs(workshop)
    words = "draw 0 of the file of inputs lacks n"
    workshop.graph_answers |= {"extract": found("w0"), "split_samples": InvalidModel(words)}
    import_job(workshop, job)
    assert workshop.state(job) == JobState.FAILED
    assert workshop.read(lambda session: Jobs(session).get(job, None)).ended_because == words


def test_right_inputs_are_read_by_the_import(workshop, job):
    with_inputs(workshop)
    read = []
    workshop.graph_answers |= {
        "extract": found("w0"),
        "split_samples": lambda samples_npz, **_params: read.append(Path(samples_npz).read_bytes()) or [],
    }
    import_job(workshop, job)
    assert workshop.state(job) == JobState.TUNING
    assert read == [b"arrays"]
