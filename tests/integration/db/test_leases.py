"""A named lease has one holder at a time, and an old token never works again."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from db.repositories.leases import Leases


@pytest.fixture
def leases(database):
    """Calls a method of Leases in a transaction of its own."""

    class Calls:
        def __getattr__(self, name):
            def call(*args):
                with database.transaction() as session:
                    return getattr(Leases(session), name)(*args)

            return call

    return Calls()


def test_of_many_who_ask_exactly_one_gets_the_lease(leases):
    with ThreadPoolExecutor(6) as pool:
        tokens = list(pool.map(lambda i: leases.acquire("plan", f"h{i}", 60), range(6)))
    assert sorted(filter(None, tokens)) == [1]


def test_leases_of_different_names_do_not_meet(leases):
    assert leases.acquire("plan:1", "a", 60) == leases.acquire("plan:2", "b", 60) == 1


def test_a_lease_behaves_like_its_model(leases):
    """Against the plainest model: who holds it, with which token, expired or not."""
    names = iter(range(10**9))

    class Model(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.name = f"lease-{next(names)}"
            self.granted = 0
            self.valid = False  # the newest token still names a holder
            self.expired = True

        @rule(expired=st.booleans())
        def acquire(self, expired):
            token = leases.acquire(self.name, "h", -1 if expired else 60)
            assert token == (self.granted + 1 if self.expired else None)
            if token is not None:
                self.granted, self.valid, self.expired = token, True, expired

        @precondition(lambda self: self.granted)
        @rule(age=st.integers(0, 2), expired=st.booleans())
        def renew(self, age, expired):
            current = age == 0 and self.valid
            assert leases.renew(self.name, self.granted - age, -1 if expired else 60) == current
            if current:
                self.expired = expired

        @precondition(lambda self: self.granted)
        @rule(age=st.integers(0, 2))
        def release(self, age):
            current = age == 0 and self.valid
            assert leases.release(self.name, self.granted - age) == current
            if current:
                self.valid, self.expired = False, True

    run_state_machine_as_test(
        Model, settings=settings(max_examples=12, stateful_step_count=12, deadline=None)
    )
