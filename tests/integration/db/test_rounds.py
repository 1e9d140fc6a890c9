"""A round belongs to one worker at a time, and whoever lost it is refused."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import delete, func, select, text

from mallorn.core.errors import LeaseLost
from mallorn.core.states import RoundState
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import MAX_DEATHS, Leases, LeaseToken
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.tables import LeaseRow, Measurement, Round


def commit(rows, hold, slots):
    batch = [rows.ok(slot) for slot in slots]
    return rows.write(lambda session: Measurements(session).add_trials(hold, batch))


def claim(rows, round_id, worker="w", lease_sec=60.0):
    return rows.write(lambda session: Rounds(session).claim(round_id, worker, lease_sec))


def expire(rows):
    """The rounds that wait again, and those that are given up."""
    lost = rows.write(lambda session: WorkItems(session).end_expired_leases(rows.job_id))
    return tuple(
        [int(each.hold.item.subject) for each in lost if each.is_given_up is end] for end in (False, True)
    )


def renew(rows, hold):
    return rows.write(lambda session: Leases(session).renew(hold, 60))


def close(rows, hold, state=RoundState.DONE):
    return rows.write(lambda session: Rounds(session).close(hold, state))


def state_of(rows, round_id):
    return rows.read(lambda session: Rounds(session).get(round_id).state)


def test_of_many_claimers_exactly_one_gets_the_round(rows):
    round_id = rows.write(rows.add_round)
    start = threading.Barrier(6)

    def race(worker):
        start.wait()
        return claim(rows, round_id, worker)

    with ThreadPoolExecutor(6) as pool:
        tokens = list(pool.map(race, [f"w{i}" for i in range(6)]))
    (token,) = filter(None, tokens)
    assert token.attempt == 1
    assert rows.read(lambda session: Rounds(session).get(round_id).worker) == token.holder


def test_a_zombies_results_are_refused_after_its_round_went_to_another(rows):
    round_id, zombie = rows.claimed_round(lease_sec=-1)
    assert expire(rows) == ([round_id], [])
    heir = claim(rows, round_id, "heir")
    assert heir == LeaseToken(zombie.item, zombie.attempt + 1, "heir")
    with pytest.raises(LeaseLost, match=f"attempt {zombie.attempt}"):
        commit(rows, zombie, [0])
    assert commit(rows, heir, [0]) == 1


def test_a_zombies_results_are_refused_while_its_round_waits_for_another(rows):
    round_id, zombie = rows.claimed_round(lease_sec=-1)
    expire(rows)
    with pytest.raises(LeaseLost):
        commit(rows, zombie, [0])
    assert rows.read(lambda session: Rounds(session).done_slots(round_id)) == set()


def test_a_zombie_can_neither_renew_nor_close(rows):
    round_id, zombie = rows.claimed_round(lease_sec=-1)
    expire(rows)
    heir = claim(rows, round_id, "heir")
    assert not renew(rows, zombie)
    assert not close(rows, zombie)
    assert close(rows, heir)


def restore_before_rounds(rows):
    """The database as a backup from before any round has it: ids are counted once more."""
    for table in (LeaseRow, Round):
        rows.write(lambda session, table=table: session.execute(delete(table)))
    if rows.database.engine.dialect.name == "postgresql":
        rows.write(lambda session: session.execute(text("alter sequence rounds_id_seq restart")))


def test_who_works_on_from_before_a_restore_writes_nothing_into_the_round_that_has_its_number(rows):
    round_id, before = rows.claimed_round("w0")
    restore_before_rounds(rows)
    again = rows.write(lambda session: rows.add_round(session, "w1"))
    heir = claim(rows, again, "heir")
    assert (again, heir.attempt) == (round_id, before.attempt)
    with pytest.raises(LeaseLost):
        commit(rows, before, [0])
    assert not renew(rows, before)
    assert not close(rows, before)
    assert not rows.write(lambda session: Rounds(session).change_inputs(before, size=1))
    assert commit(rows, heir, [0]) == 1


def test_renewing_keeps_a_round_from_expiring(rows):
    _, hold = rows.claimed_round(lease_sec=-1)
    assert renew(rows, hold)
    assert expire(rows) == ([], [])


def test_a_round_outlives_many_workers_but_not_all(rows):
    round_id = rows.write(rows.add_round)
    for _ in range(MAX_DEATHS - 1):
        claim(rows, round_id, lease_sec=-1)
        assert expire(rows) == ([round_id], [])
    claim(rows, round_id, lease_sec=-1)
    assert expire(rows) == ([], [round_id])
    assert state_of(rows, round_id) == RoundState.POISON
    assert claim(rows, round_id) is None


def test_a_round_that_is_handed_back_loses_nothing_however_often(rows):
    round_id = rows.write(rows.add_round)
    for attempt in range(1, 6):
        token = claim(rows, round_id)
        assert token.attempt == attempt
        close(rows, token, RoundState.QUEUED)
    claim(rows, round_id, lease_sec=-1)
    assert expire(rows) == ([round_id], [])


def test_a_closed_round_takes_no_more_results(rows):
    _, hold = rows.claimed_round()
    assert close(rows, hold)
    with pytest.raises(LeaseLost):
        commit(rows, hold, [0])


def test_a_round_handed_back_can_be_claimed_again(rows):
    round_id, hold = rows.claimed_round()
    assert close(rows, hold, RoundState.QUEUED)
    assert claim(rows, round_id).attempt == hold.attempt + 1


def test_a_workload_may_have_several_rounds_in_flight_even_of_one_job(rows):
    _, hold = rows.claimed_round()
    other = rows.write(lambda session: rows.add_job(session, "bob", ("w0", "w1")))
    queued = [rows.write(lambda session, job=job: rows.add_round(session, "w0", job)) for job in ("", other)]

    def others(session):
        return Rounds(session).list_in_flight(Rounds(session).get(queued[0]))

    assert [row.id for row in rows.read(others)] == [int(hold.item.subject), queued[1]]
    close(rows, hold)
    assert [row.id for row in rows.read(others)] == queued[1:]


def test_a_round_may_look_at_all_that_was_committed_before_it(rows):
    _, hold = rows.claimed_round()
    commit(rows, hold, range(5))
    close(rows, hold)
    second = rows.write(rows.add_round)
    seen = rows.read(lambda session: Rounds(session).get(second).seen_upto)
    newest = rows.read(lambda session: session.scalar(select(func.max(Measurement.id))))
    assert seen == newest > 0


@pytest.mark.parametrize("end", ["pause", "cancel"])
def test_rounds_of_a_job_that_does_not_tune_are_not_to_be_had(rows, end):
    round_id = rows.write(rows.add_round)
    rows.write(lambda session: getattr(Jobs(session), end)(rows.job_id, "ada"))
    assert claim(rows, round_id) is None


def test_cancelling_ends_open_rounds_and_their_workers_learn_it(rows):
    leased, hold = rows.claimed_round("w0")
    queued = rows.write(lambda session: rows.add_round(session, "w1"))
    assert rows.write(lambda session: Rounds(session).cancel_open(rows.job_id)) == 2
    assert {state_of(rows, leased), state_of(rows, queued)} == {RoundState.CANCELLED}
    assert not renew(rows, hold)
