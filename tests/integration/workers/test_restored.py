"""A database that was restored under a worker that goes on."""

from sqlalchemy import delete

from mallorn.core.states import JobState, RoundState
from mallorn.db.tables import FinishStep, Measurement
from mallorn.workers.process import places
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish


def test_a_round_whose_trials_a_restore_took_away_is_not_done_and_measures_them_again(workshop, monkeypatch):
    monkeypatch.setattr(places, "COMMIT_SEC", 0.0)
    job = workshop.job(["w0"])
    round_id = workshop.next_round(job)

    def restore_once(slot):
        if workshop.rows():
            workshop.write(lambda session: session.execute(delete(Measurement)))
            workshop.bench.before = lambda slot: None

    workshop.bench.before = restore_once
    assert workshop.run(round_id) is None
    assert workshop.round(round_id).state == RoundState.QUEUED
    assert workshop.run(round_id) is not None
    assert workshop.round(round_id).state == RoundState.DONE
    assert sorted(row.slot for row in workshop.rows(round_id=round_id)) == [*range(8)]


def test_a_finish_whose_decisions_a_restore_took_away_is_not_done_and_decides_them_again(
    workshop, exported, check
):
    job = tuned(workshop, ("w0", "w1"))
    verify = check.verify

    def restore_once(program, slot):
        if program.key == "w1":
            workshop.write(lambda session: session.execute(delete(FinishStep)))
            check.verify = verify
        return verify(program, slot)

    check.verify = restore_once
    finish(workshop, job)
    assert workshop.state(job) == JobState.FINISHING
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert [key for key, _candidate in check.asked] == ["w0", "w1", "w0"]
