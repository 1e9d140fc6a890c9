"""The same workload's measurements answer: of this context, of others that compare, of the target's kin."""

import pytest
from sqlalchemy import update

from mallorn.core.targets import parse_target
from mallorn.core.values.finish_report import Confidence
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.workloads import Workloads
from mallorn.db.tables import Job, Measurement
from mallorn.workers.zero_shot import measured_workloads
from mallorn.workers.zero_shot.answer_source import ZeroShotQuery
from mallorn.workers.zero_shot.measured_workloads import propose_from_same_workload
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.workshop import ENDPOINT, TARGET

INSIDE = {"cache": "model", "beside": 0, "model": "other"}


@pytest.fixture
def ask(workshop):
    """The answers on a task that was measured, for a job of some context of the target."""
    job = workshop.job(("w0",), trials=16)
    workshop.work(job)
    [measured] = {row.context_id for row in workshop.rows(job_id=job) if row.context_id is not None}

    def answers(context_id):
        def read(session):
            [task] = Tasks(session).list(job)
            workload = Workloads(session).get(task.workload_id)
            at = measured if context_id == "its own" else context_id
            asking = Job(owner="ada", target_id=workshop.target_id, context_id=at)
            question = ZeroShotQuery(asking, workload, TARGET, workshop.space)
            return list(propose_from_same_workload(session, question))

        return workshop.read(read)

    return answers


def context(workshop, host_class="made-up", evaluator=None, built_by=None):
    """The id of a context of the target."""
    fields = workshop.target_id, host_class, ENDPOINT.tvm_version, ENDPOINT.threads, evaluator or {}
    return workshop.write(lambda session: Contexts(session).ensure(*fields, built_by).id)


def move(workshop, where, times_as_fast=1.0):
    """Take the times of the newest job for times of another context."""
    last = workshop.rows()[-1].job_id
    values = {"context_id": where, "latency_us": Measurement.latency_us / times_as_fast}
    rows = update(Measurement).where(Measurement.job_id == last, Measurement.latency_us.is_not(None))
    workshop.write(lambda session: session.execute(rows.values(values)))


def test_what_was_measured_in_the_jobs_own_context_is_sure(ask):
    assert ask("its own")[0].sure == Confidence.MEASURED


@pytest.mark.parametrize("known", [True, False], ids=["another", "none yet"])
def test_what_another_context_measured_is_likely_and_says_under_which_conditions(workshop, ask, known):
    first, *_ = found = ask(context(workshop, "elsewhere") if known else None)
    assert {each.sure for each in found} == {Confidence.LIKELY}
    assert first.because == "among the fastest that were timed alone on made-up, 2 threads, TVM 0.27.0"
    assert first.candidate == ask("its own")[0].candidate
    assert first.expected_us == ask("its own")[0].expected_us


def conditions(answers):
    """Where each answer was timed, and by whose code, each once, in their order."""
    words = [each.because.partition(" timed ")[2].split(", ") for each in answers]
    return list(dict.fromkeys(f"{where} of {tvm.removeprefix('TVM ')}" for where, _, tvm in words))


def test_times_of_such_a_host_come_first_and_of_those_what_was_timed_outside_a_model(workshop, ask):
    """However fast the others seem: their times do not compare."""
    move(workshop, context(workshop))
    for times_as_fast, where in enumerate(
        (
            context(workshop, evaluator=INSIDE),
            context(workshop, "another"),
            context(workshop, "another", INSIDE),
            context(workshop, built_by="0.28.0"),
        ),
        2,
    ):
        tuned(workshop, ("w0",), trials=8, seed=times_as_fast)
        move(workshop, where, 10.0**times_as_fast)
    own = context(workshop, evaluator={"of": "the job"})
    assert conditions(ask(own)) == [
        "alone on made-up of 0.27.0",
        "inside a model on made-up of 0.27.0",
        "alone on made-up of 0.28.0",
        "alone on another of 0.27.0",
        "inside a model on another of 0.27.0",
    ]


def test_of_contexts_that_are_as_near_each_has_its_first_before_any_has_its_second(workshop, ask):
    move(workshop, context(workshop, "one"))
    tuned(workshop, ("w0",), trials=8, seed=5)
    move(workshop, context(workshop, "other"), 1e6)
    words = [each.because.partition(" on ")[2].partition(",")[0] for each in ask(context(workshop, "third"))]
    assert words == ["one", "other", "one", "other", "one", "other"]


def test_targets_without_measurements_of_the_workload_are_not_read(workshop, ask, monkeypatch):
    """Any user may name a new target with each job, so their number must cost a question nothing."""
    read = []
    monkeypatch.setattr(measured_workloads, "distance", lambda wanted, other: read.append(other))
    target = parse_target('{"kind":"llvm","num-cores":3}')
    workshop.write(lambda session: Targets(session).ensure(target).id)
    ask("its own")
    assert target not in read
