"""What a searcher learned in a round is there for the task's next one, for all of its attempts."""

import pytest

from benchmarks.lab.unlearned import TWINS
from mallorn.core.states import JobState
from mallorn.db.repositories.archive_and_delete_jobs import Removals
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.search_and_finish_states import KEPT, SearchStates
from mallorn.searchers.algorithms.random import RandomSearch
from mallorn.searchers.stateful_searcher import MOST_BYTES, StatefulSearcher
from tests.integration.workers.test_round_life import kill_in, proposals_of


class Counting(StatefulSearcher):
    """Counts its rounds."""

    def __init__(self, sampler=None):
        self.sampler = sampler

    def propose_from(self, state, *given):
        return RandomSearch().propose(*given), str(int(state or 0) + 1).encode()


class Untidy(Counting):
    """Leaves more than may be kept."""

    def propose_from(self, state, *given):
        return RandomSearch().propose(*given), bytes(MOST_BYTES + 1)


class Raising(Counting):
    """Does not work with what it left itself."""

    def propose_from(self, state, *given):
        if state:
            raise ValueError("what is this?")
        return super().propose_from(state, *given)


def named(kind):
    return f"{__name__}:{kind.__name__}"


def left_by(workshop, round_id):
    return workshop.read(lambda session: SearchStates(session).read_state(round_id))


def rounds_of(workshop, job, count):
    found = []
    for _ in range(count):
        found.append(workshop.next_round(job))
        workshop.run(found[-1])
    return found


def test_each_round_goes_on_from_the_last_and_only_the_newest_states_are_kept(workshop):
    first, *others = rounds_of(workshop, workshop.job(("w0",), search=named(Counting)), 4)
    assert [workshop.round(each).state_from for each in (first, *others)] == [None, first, *others[:-1]]
    assert [left_by(workshop, each) for each in (first, *others)] == [None, None, b"3", b"4"]
    assert KEPT == 2


def test_another_job_with_the_same_workload_begins_with_nothing(workshop):
    for seed in range(2):
        job = workshop.job(("w0",), trials=8, search=named(Counting), seed=seed)
        (only,) = rounds_of(workshop, job, 1)
        assert left_by(workshop, only) == b"1"


@pytest.mark.parametrize(
    "search", ["qlearning", *(pytest.param(name, marks=pytest.mark.long) for name in ("ppo", "reinforce"))]
)
def test_after_a_kill_a_learner_goes_on_from_the_same_state(workshop, monkeypatch, search):
    job = workshop.job(("w0",), search=search, trials=32)
    rounds_of(workshop, job, 2)  # the first has defaults alone
    round_id = workshop.next_round(job)
    kill_in(workshop, round_id, measured=6, monkeypatch=monkeypatch)
    before = proposals_of(workshop, round_id)
    workshop.run(round_id)
    assert proposals_of(workshop, round_id) == before, "a closed round can still be recomputed"
    assert left_by(workshop, round_id) == before.state is not None
    assert workshop.round(round_id).state_from is not None


def test_a_searcher_that_fails_with_its_state_is_left_out_of_the_round_alone(workshop):
    first, second = rounds_of(workshop, workshop.job(("w0",), search=named(Raising)), 2)
    assert workshop.round(second).searcher == "random"
    assert (left_by(workshop, first), left_by(workshop, second)) == (b"1", None)


def test_a_state_that_is_too_large_costs_the_searcher_its_round(workshop):
    (only,) = rounds_of(workshop, workshop.job(("w0",), search=named(Untidy)), 1)
    (noted,) = workshop.round(only).reason.skipped_parts
    assert (
        noted.reason
        == f"the searcher {named(Untidy)} must leave at most 1,024 KiB of bytes to its next round"
    )
    assert left_by(workshop, only) is None


def test_what_a_deleted_job_learned_is_gone(workshop):

    job = workshop.job(("w0",), search=named(Counting))
    (only,) = rounds_of(workshop, job, 1)
    workshop.write(lambda session: Jobs(session).move_to_state(job, list(JobState), JobState.DONE, "why"))
    assert left_by(workshop, only) == b"1"
    workshop.write(lambda session: Removals(session).delete(job, "ada"))
    assert left_by(workshop, only) is None


def test_a_learner_without_its_learning_runs_in_a_job_by_its_name(workshop):
    twin = TWINS["ppo-unlearned"]
    rounds = rounds_of(workshop, workshop.job(("w0",), search=twin, trials=16), 2)
    assert {row.origin.rpartition(":")[0] for row in workshop.rows(round_id=rounds[1])} == {twin}
    assert workshop.round(rounds[1]).reason.skipped_parts == []
    assert left_by(workshop, rounds[1]) is None
