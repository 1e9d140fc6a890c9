"""Work has one holder at a time, and an old token never works again."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from mallorn.db.repositories.leases import Leases, LeaseToken, WorkItem


@pytest.fixture
def holds(database):
    """Calls a method of Holds in a transaction of its own."""

    class Calls:
        def __getattr__(self, name):
            def call(*args):
                with database.transaction() as session:
                    return getattr(Leases(session), name)(*args)

            return call

    return Calls()


def test_of_many_who_ask_exactly_one_gets_the_work(holds):
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda i: holds.claim(WorkItem.for_planning(1), f"h{i}", 60), range(6)))
    assert [hold.attempt for hold in found if hold] == [1]


def test_pieces_of_work_do_not_meet(holds):
    items = [WorkItem.for_planning(1), WorkItem.for_planning(2), WorkItem.for_round(1)]
    assert [holds.claim(item, "a", 60) for item in items] == [LeaseToken(item, 1, "a") for item in items]


def test_a_holder_that_went_silent_is_a_death_whoever_notices(holds):
    item = WorkItem.for_planning(1)
    holds.claim(item, "a", -1)
    assert holds.claim(item, "b", -1) == LeaseToken(item, 2, "b")
    (loss,) = holds.free_expired_work(None)
    row = holds.get(item)
    assert (loss.hold.item, loss.hold.attempt, row.losses, row.deaths) == (item, 2, 0, 2)
    assert holds.free_expired_work(None) == []


def test_what_comes_up_anew_has_lost_nothing(holds, rows):
    item = WorkItem.for_round(7)
    for is_death in (False, True):
        holds.record_loss(holds.claim(item, "a", 60), 3, is_death)
    assert (holds.get(item).losses, holds.get(item).deaths) == (1, 1)
    holds.add_or_reopen_work(item, rows.job_id)
    assert (holds.get(item).losses, holds.get(item).deaths) == (0, 0)


def test_planning_waits_for_nobody(holds):
    item = WorkItem.for_planning(1)
    holds.claim(item, "a", -1)
    holds.free_expired_work(None)
    holds.return_work(holds.claim(item, "b", 60))
    assert holds.get(item).due_at is None


def test_held_work_behaves_like_its_model(holds):
    """Against the plainest model: who holds it, with which token, expired or not."""
    numbers = iter(range(10**9))

    class Model(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.item = WorkItem.for_planning(next(numbers))
            self.granted = 0
            self.valid = False  # the newest token still names a holder
            self.expired = True

        def hold(self, age):
            return LeaseToken(self.item, self.granted - age, "h")

        @rule(expired=st.booleans())
        def claim(self, expired):
            hold = holds.claim(self.item, "h", -1 if expired else 60)
            assert hold == (self.hold(-1) if self.expired else None)
            if hold is not None:
                self.granted, self.valid, self.expired = hold.attempt, True, expired

        @precondition(lambda self: self.granted)
        @rule(age=st.integers(0, 2), expired=st.booleans())
        def renew(self, age, expired):
            current = age == 0 and self.valid
            assert holds.renew(self.hold(age), -1 if expired else 60) == current
            if current:
                self.expired = expired

        @precondition(lambda self: self.granted)
        @rule(age=st.integers(0, 2), way=st.sampled_from(["end", "return_work"]))
        def let_go(self, age, way):
            current = age == 0 and self.valid
            assert getattr(holds, way)(self.hold(age)) == current
            if current:
                self.valid, self.expired = False, True

        @rule()
        def reap(self):
            found = [
                loss.hold.attempt for loss in holds.free_expired_work(None) if loss.hold.item == self.item
            ]
            assert found == ([self.granted] if self.valid and self.expired else [])
            self.valid = self.valid and not self.expired

    run_state_machine_as_test(
        Model, settings=settings(max_examples=12, stateful_step_count=12, deadline=None)
    )
