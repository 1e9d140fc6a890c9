"""Sources of answers, each asked alone: what they take of the dataset, in which order, and how sure it is."""

import pytest
from sqlalchemy import update

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import parse_target
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workloads import KEPT, Workloads
from mallorn.db.tables import Job, Measurement, Workload
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.workers.zero_shot.answer_source import ZeroShotQuery, in_order
from mallorn.workers.zero_shot.measured_workloads import (
    propose_from_same_workload,
    propose_from_similar_workloads,
)
from mallorn.workers.zero_shot.roller_and_cost_models import propose_from_roller
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.workshop import TARGET


def measured(workshop, name="w0", trials=16):
    """The workload's row and the context of a job that measured it."""
    job = tuned(workshop, (name,), trials)

    def found(session):
        [task] = Tasks(session).list(job)
        return Workloads(session).get(task.workload_id), Jobs(session).get(job, None).context_id

    return workshop.read(found)


def best(workshop, workload):
    return workshop.read(lambda session: Trials(session).best(workload.id, workshop.target_id))[0]


def ask(workshop, source, workload, context=None, space=None):
    job = Job(owner="ada", target_id=workshop.target_id, context_id=context)
    question = ZeroShotQuery(job, workload, TARGET, space or SyntheticSpace(64, 64, 64))
    return workshop.read(lambda session: list(source(session, question)))


def change(workshop, **values):
    """All that was measured, made something else."""
    workshop.write(lambda session: session.execute(update(Measurement).values(**values)))


def move(workshop, target):
    """All that was measured was measured on another target."""

    def context(session):
        target_id = Targets(session).ensure(target).id
        return Contexts(session).ensure(target_id, "made-up", "0.27.0", 2, {})

    there = workshop.write(context)
    change(workshop, target_id=there.target_id, context_id=there.id)


def sized(workshop, name, extents):
    features = {"extents": extents}
    query = update(Workload).where(Workload.key == name).values(features=features)
    workshop.write(lambda session: session.execute(query))


def test_kin_is_asked_and_its_times_are_not_this_targets(workshop):
    workload, context = measured(workshop)
    kin = parse_target({"kind": "llvm", "mcpu": "haswell", "num-cores": 2})
    move(workshop, kin)
    answers = ask(workshop, propose_from_same_workload, workload, context)
    assert {(answer.sure, answer.expected_us) for answer in answers} == {("likely", None)}
    assert "haswell" in answers[0].because


@pytest.mark.parametrize("other", [{"mcpu": "znver4", "num-cores": 2}, {"mcpu": "haswell", "num-cores": 8}])
def test_schedules_for_other_vectors_or_cores_answer_nothing(workshop, other):
    workload, context = measured(workshop)
    kin = parse_target({"kind": "llvm", **other})
    move(workshop, kin)
    assert ask(workshop, propose_from_same_workload, workload, context) == []


def test_another_kind_of_target_is_no_kin(workshop):
    workload, context = measured(workshop)
    gpu = parse_target({"kind": "cuda", "arch": "sm_80"})
    move(workshop, gpu)
    assert ask(workshop, propose_from_same_workload, workload, context) == []


def test_a_candidate_of_a_sketch_that_the_space_lacks_answers_with_its_own(workshop):
    workload, context = measured(workshop)
    space = SyntheticSpace(64, 64, 64)
    space.by_key = {}
    first, *_ = ask(workshop, propose_from_same_workload, workload, context, space)
    assert first.sketch.key == first.candidate.sketch


def test_what_computes_wrong_results_answers_nothing(workshop):
    workload, context = measured(workshop)
    change(workshop, outcome=Outcome.WRONG_RESULT, latency_us=None)
    assert ask(workshop, propose_from_same_workload, workload, context) == []


def test_the_nearest_sizes_answer_first_and_far_ones_not_at_all(workshop):
    for name, extents in {"a": [64, 64, 96], "b": [64, 64, 80], "c": [64, 64, 1024]}.items():
        measured(workshop, name, 8)
        sized(workshop, name, extents)
    workload, context = measured(workshop, "w0", 8)
    words = [answer.because for answer in ask(workshop, propose_from_similar_workloads, workload, context)]
    assert list(dict.fromkeys(words)) == [
        f"carried from the same loops in sizes {times} times apart, timed here" for times in ("1.2", "1.5")
    ]


def test_what_others_keep_to_themselves_answers_nothing(workshop):
    measured(workshop, "a", 8)
    sized(workshop, "a", [64, 64, 96])
    workload, context = measured(workshop, "w0", 8)
    kept = update(Workload).where(Workload.key == "a").values(kept_upto=KEPT)
    workshop.write(lambda session: session.execute(kept))
    assert ask(workshop, propose_from_similar_workloads, workload, context), "ada brought it herself"
    workshop.write(lambda session: session.execute(update(Job).values(owner="bob")))
    assert ask(workshop, propose_from_similar_workloads, workload, context) == []


def test_what_is_carried_fits_the_shape(workshop):
    measured(workshop, "a", 8)
    workload, context = measured(workshop, "w0", 8)
    space = SyntheticSpace(96, 64, 64)
    sized(workshop, "a", [64, 64, 64])
    answers = ask(workshop, propose_from_similar_workloads, workload, context, space)
    assert answers
    # Rebuilt, or refused for what it is: never ill-formed.
    assert len(space.valid([answer.candidate for answer in answers])) == len(answers)
    for answer in answers:
        rows, limit = answer.candidate.decisions[:4], 96
        assert rows[0] * rows[1] * rows[2] * rows[3] == limit


def test_each_candidate_is_answered_once_by_the_first_that_knows_it(workshop):
    workload, context = measured(workshop)
    job = Job(owner="ada", target_id=workshop.target_id, context_id=context)
    question = ZeroShotQuery(job, workload, TARGET, SyntheticSpace(64, 64, 64))
    sources = (propose_from_same_workload, propose_from_same_workload, propose_from_roller)
    answers = workshop.read(lambda session: list(in_order(sources, lambda source: source(session, question))))
    candidates = [answer.candidate for answer in answers]
    assert len(set(candidates)) == len(candidates)
    assert answers[0].source == "same"


def test_who_is_not_reached_is_not_asked(workshop):
    workload, context = measured(workshop)
    job = Job(owner="ada", target_id=workshop.target_id, context_id=context)
    question = ZeroShotQuery(job, workload, TARGET, SyntheticSpace(64, 64, 64))
    asked = []

    def ask(source):
        asked.append(source)
        return workshop.read(lambda session: list(source(session, question)))

    same, constructed = propose_from_same_workload, propose_from_roller
    assert next(in_order((same, constructed), ask)).source == "same"
    assert asked == [same]
