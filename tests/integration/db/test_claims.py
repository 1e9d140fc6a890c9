"""Which jobs could use a turn of their target: those with a task that no round keeps them from."""

from random import Random

import pytest
from sqlalchemy import exists, func, select, update

from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.tasks import count_workload_rounds
from mallorn.db.tables import Job, Round, Task
from tests.fixtures.rows import Rows

WORKLOADS = tuple(f"w{at}" for at in range(5))


def able_by_search(session, target_id):
    """Search the rounds of each task of each job."""
    is_free = Task.job_id == Job.id, Task.retired == "", count_workload_rounds() == 0
    able = exists(select(Task.id).where(*is_free).correlate(Job))
    return dict(session.execute(select(Job.id, able).where(Job.target_id == target_id)).all())


@pytest.mark.parametrize("seed", range(6))
def test_a_job_is_able_if_a_task_has_no_round_in_flight_that_counts_for_it(database, seed):
    random, rows = Random(seed), Rows(database, WORKLOADS)
    jobs = [rows.job_id]
    jobs += [
        rows.write(lambda session: rows.add_job(session, "ada", tuple(random.sample(WORKLOADS, 2))))
        for _ in range(8)
    ]
    for workload in random.sample(WORKLOADS, 4):
        ids = select(Task.job_id).where(Task.workload_id == rows.workloads[workload])
        owner = random.choice(sorted(rows.read(lambda session, ids=ids: session.scalars(ids).all())))
        added = rows.write(lambda session, owner=owner, name=workload: rows.add_round(session, name, owner))
        columns = {"detached": random.random() < 0.5, "state": random.choice(["queued", "leased", "done"])}
        changed = update(Round).where(Round.id == added).values(columns)
        rows.write(lambda session, changed=changed: session.execute(changed))
    # All jobs learn from each other, and have used no turn.
    same = update(Job).values(context_id=rows.context_id, wants_rounds=False)
    rows.write(lambda session: session.execute(same))
    retired = update(Task).where(Task.job_id == random.choice(jobs)).values(retired="spent")
    rows.write(lambda session: session.execute(retired))

    def compare(session):
        found, open_rounds = FairShares(session).claims(rows.target_id)
        is_open = Round.state.in_(["queued", "leased"]), ~Round.detached
        assert open_rounds == session.scalar(select(func.count()).select_from(Round).where(*is_open))
        claims = {claim.id: claim.able for claim in found}
        return claims, able_by_search(session, rows.target_id)

    found, expected = rows.read(compare)
    assert found == expected
    assert len(found) == len(jobs)


def test_a_job_that_used_all_of_its_last_turn_wants_rounds_and_without_any_in_flight_is_able(database):
    rows = Rows(database, ("w0",))
    other = rows.write(lambda session: rows.add_job(session, "bob", ("w0",)))
    rows.write(lambda session: rows.add_round(session, "w0"))

    def found(job_id):
        claims, _ = rows.read(lambda session: FairShares(session).claims(rows.target_id))
        return next((claim.able, claim.wants_rounds) for claim in claims if claim.id == job_id)

    assert (found(rows.job_id), found(other)) == ((False, True), (True, True)), "as new jobs do"
    for wants_rounds in (False, True):
        for job_id in (other, rows.job_id):
            turn = {"job_id": job_id, "share_pass": None, "owner_pass": None, "wants_rounds": wants_rounds}
            rows.write(lambda session, turn=turn: FairShares(session).take_turn(**turn))
        assert found(rows.job_id) == (False, wants_rounds)
        assert found(other) == (wants_rounds, wants_rounds)
