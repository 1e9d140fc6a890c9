"""Several rounds of one workload in flight: what each proposes, stores and knows of the others."""

from contextlib import contextmanager
from sys import maxsize

import pytest
from sqlalchemy import update

from mallorn.core.errors import LeaseLost
from mallorn.core.states import JobState, RoundState
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.decision_log import PlannedRound
from mallorn.core.values.trial import Proposal
from mallorn.db.measurement_codec import unpack_decisions
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import WorkItem
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.workloads import Sketches
from mallorn.db.tables import Round
from mallorn.workers.process.leased_work import leased_work
from mallorn.workers.round import propose
from mallorn.workers.round.loaded_round import load_round
from mallorn.workers.round.run import fix_round_inputs, run_round
from tests.fixtures.database import BOTH

SIZE = 8


def queue(workshop, job_id, size=SIZE, seed=1):
    """The id of a further round of the job's first task, whatever the planner would say."""

    def add(session):
        job, task = Jobs(session).get(job_id, None), Tasks(session).list(job_id)[0]
        index = FairShares(session).job_to_plan(job_id).next_index
        planned = PlannedRound(task.id, index, size, seed)
        return Rounds(session).add(job, task.workload_id, planned, job.options["search"]).id

    return workshop.write(add)


@pytest.fixture
def job(workshop):
    """A job whose only task has a closed round."""
    job_id = workshop.job(("w0",), trials=10_000)
    workshop.closed_round(job_id)
    for round_id in workshop.queued(job_id):
        workshop.run(round_id)
    return job_id


@contextmanager
def proposed(workshop, round_id):
    """A round in the hands of a worker, with its proposals stored and nothing measured."""
    with leased_work(workshop, WorkItem.for_round(round_id), fix_round_inputs) as work:
        propose.prepare_round(workshop, work.hold)
        yield work


def candidates(workshop, round_id):
    """The stored proposals of a round, by slot."""
    stored = [each.candidate for each in workshop.round(round_id).proposals]
    return [(candidate.sketch, candidate.decisions) for candidate in stored]


def measured(workshop, round_id):
    """What a round measured, by slot."""
    trials = sorted(workshop.rows(round_id=round_id), key=lambda row: row.slot)
    sketches = workshop.read(lambda session: Sketches(session).rows([row.sketch_id for row in trials]))
    keys = {sketch.id: sketch.key for sketch in sketches}
    return [(keys[row.sketch_id], unpack_decisions(row.decisions)) for row in trials]


def meanwhile(monkeypatch, act):
    """Do something once, after a round has proposed and before it stores that."""
    store, acts = propose._store_proposals, [act]

    def after_it(*given):
        while acts:
            acts.pop()()
        return store(*given)

    monkeypatch.setattr(propose, "_store_proposals", after_it)


def break_off(workshop, round_id, after):
    """Run a round whose worker ends when it has measured so many candidates."""
    seen = []

    def end(slot):
        if len(seen) == after:
            raise LeaseLost
        seen.append(slot)

    workshop.bench.before = end
    with leased_work(workshop, WorkItem.for_round(round_id), fix_round_inputs) as work:
        hold = work.hold
        run_round(work)
    workshop.bench.before = lambda slot: None
    assert workshop.write(lambda session: Rounds(session).give_back(hold))


@BOTH
def test_proposals_are_stored_before_the_first_candidate_runs_and_cleared_at_the_end(workshop, job):
    round_id, stored = queue(workshop, job), []
    workshop.bench.before = lambda slot: stored.append(candidates(workshop, round_id))
    workshop.run(round_id)
    assert len(stored) == SIZE
    assert stored[0] == measured(workshop, round_id)
    assert workshop.round(round_id).proposals is None


def test_a_retry_measures_what_is_stored_and_asks_no_searcher(workshop, job, monkeypatch):
    round_id = queue(workshop, job)
    break_off(workshop, round_id, after=3)
    stored = candidates(workshop, round_id)
    workshop.run(queue(workshop, job, seed=2))  # what it brought would change any proposal
    monkeypatch.setattr(propose, "_search", lambda *_: pytest.fail("a searcher was asked"))
    workshop.run(round_id)
    assert workshop.round(round_id).state == RoundState.DONE
    assert measured(workshop, round_id) == stored
    assert set(workshop.bench.executions.values()) == {1}


def test_proposals_of_sketches_that_this_code_does_not_know_are_made_anew(workshop, job):
    round_id = queue(workshop, job)
    break_off(workshop, round_id, after=3)
    before = measured(workshop, round_id)
    unknown = [Proposal(Candidate("of other code", (1,)), None, "random")] * SIZE
    replaced = update(Round).where(Round.id == round_id).values(proposals=unknown)
    workshop.write(lambda session: session.execute(replaced))
    workshop.run(round_id)
    assert workshop.round(round_id).state == RoundState.DONE
    assert measured(workshop, round_id)[:3] == before
    assert len(set(measured(workshop, round_id))) == SIZE
    assert set(workshop.bench.executions.values()) == {1}


@BOTH
def test_a_round_proposes_nothing_that_another_has_in_flight(workshop, job):
    first, second = queue(workshop, job), queue(workshop, job)  # of one seed
    with proposed(workshop, first):
        workshop.run(second)
        assert not set(candidates(workshop, first)) & set(measured(workshop, second))


@BOTH
def test_two_that_propose_at_once_measure_nothing_twice(workshop, job, monkeypatch):
    first, second = queue(workshop, job), queue(workshop, job)
    seen = []
    with proposed_later(workshop, second) as start:
        meanwhile(monkeypatch, lambda: seen.append(start()))
        workshop.run(first)
        assert seen
        assert not set(candidates(workshop, second)) & set(measured(workshop, first))
    assert workshop.round(first).state == RoundState.DONE


@contextmanager
def proposed_later(workshop, round_id):
    """A function that lets a worker lease a round and store its proposals."""
    with leased_work(workshop, WorkItem.for_round(round_id), fix_round_inputs) as work:
        yield lambda: propose.prepare_round(workshop, work.hold)


@BOTH
def test_nothing_is_measured_twice_that_another_round_measured_meanwhile(workshop, job, monkeypatch):
    first, second = queue(workshop, job), queue(workshop, job)
    meanwhile(monkeypatch, lambda: workshop.run(second))
    workshop.run(first)
    assert {workshop.round(each).state for each in (first, second)} == {RoundState.DONE}
    assert set(workshop.bench.executions.values()) == {1}


@BOTH
def test_proposals_of_a_round_that_was_not_read_are_noticed(workshop, job):
    first, second = queue(workshop, job), queue(workshop, job)
    with proposed(workshop, second), leased_work(workshop, WorkItem.for_round(first)) as work:
        for known, is_stored in (([first], False), ([first, second], True)):
            stored = workshop.write(
                lambda session, known=known: Rounds(session).store_proposals(
                    work.hold, known, maxsize, proposals=[], size=SIZE
                )
            )
            assert stored == is_stored


def test_an_attempt_that_lost_its_lease_stores_nothing(workshop, job, monkeypatch):
    round_id = queue(workshop, job)
    with leased_work(workshop, WorkItem.for_round(round_id)) as work:
        meanwhile(monkeypatch, lambda: workshop.write(lambda session: Rounds(session).give_back(work.hold)))
        with pytest.raises(LeaseLost):
            propose.prepare_round(workshop, work.hold)
    assert workshop.round(round_id).proposals is None


@BOTH
def test_a_round_sees_what_was_measured_before_its_first_claim(workshop, job):
    first, second = queue(workshop, job), queue(workshop, job)
    workshop.run(first)
    newest = max(row.id for row in workshop.rows())
    break_off(workshop, second, after=0)
    assert workshop.round(second).seen_upto == newest
    workshop.run(queue(workshop, job, seed=3))
    assert workshop.read(lambda session: load_round(session, second)).row.seen_upto == newest
    workshop.run(second)
    assert workshop.round(second).seen_upto == newest


def test_proposals_go_with_a_round_that_is_cancelled(workshop, job):
    round_id = queue(workshop, job)
    with proposed(workshop, round_id):
        workshop.write(lambda session: Rounds(session).cancel_open(job))
    row = workshop.round(round_id)
    assert (row.state, row.proposals) == (RoundState.CANCELLED, None)


def test_a_space_is_exhausted_only_when_no_round_has_candidates_of_it_in_flight(workshop):
    workshop.use_space(2, 2, 1)  # 384 candidates
    job = workshop.job(("w0",), trials=10_000, policy="round-robin")
    workshop.closed_round(job)
    workshop.write(lambda session: Rounds(session).cancel_queued(job))
    first, second, third = (queue(workshop, job, size=300) for _ in range(3))
    with proposed(workshop, first):
        workshop.run(second)
        assert (workshop.round(second).state, workshop.round(second).size) == (RoundState.DONE, 76)
        workshop.run(third)
        assert workshop.round(third).state == RoundState.QUEUED
        assert "other rounds have all untried candidates of w0" in workshop.explanation(job)
        workshop.write(lambda session: Rounds(session).give_back(workshop.hold(WorkItem.for_round(first))))
    workshop.write(lambda session: Rounds(session).cancel_open(job))
    workshop.work(job)
    assert workshop.state(job) == JobState.FINISHING, "what was cancelled is proposed again"
    assert len(workshop.bench.executions) == 384
    assert set(workshop.bench.executions.values()) == {1}
