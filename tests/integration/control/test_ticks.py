"""Loops that must live turn by the database's clock alone, wherever that one or those of hosts go."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, update

from mallorn.core import queues
from mallorn.core.errors import Unavailable
from mallorn.core.log_setup import Turn
from mallorn.db.repositories.control_loop_ticks import GAP_SEC, LoopTicks
from mallorn.db.repositories.devices import Devices
from mallorn.db.repositories.leases import Leases, LeaseToken, WorkItem
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.tables import Device, Job, LeaseRow, Tick, Worker
from mallorn.services.control import app as control
from mallorn.services.control import celery_tasks as tasks
from mallorn.services.control.periodic_tasks import collect_jobs_to_plan, requeue_expired_leases
from tests.fixtures.database import BOTH
from tests.fixtures.workshop import Workshop

MINUTES = 300.0
LEASE_SEC = 60.0


def begin(workshop: Workshop, name: str = "loop") -> float | None:
    return workshop.write(lambda session: LoopTicks(session).begin_turn(name, 5.0))


def step(workshop: Workshop, seconds: float) -> None:
    """What a step of the database's clock is to the moments in it, by so much forwards."""
    for column in (Tick.begun_at, Tick.since, Tick.done_at, LeaseRow.until, LeaseRow.due_at):
        moved = update(column.class_).values({column.key: column - seconds})
        workshop.write(lambda session, moved=moved: session.execute(moved))
    for column in (Device.last_seen, Worker.last_seen, Job.planned_at):
        moved = update(column.class_).values({column.key: column - seconds})
        workshop.write(lambda session, moved=moved: session.execute(moved))


@pytest.fixture
def turns(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """One tick of the reaper, as its task has it; what it sends is lost."""
    monkeypatch.setattr(tasks, "database", lambda: workshop.database)
    monkeypatch.setattr(tasks, "send", lambda *_: None)
    monkeypatch.setattr(tasks, "settings", lambda: workshop.settings)
    return tasks.reap_expired_leases


def held(workshop: Workshop, item: WorkItem) -> bool:
    return workshop.held(item).until is not None


def test_ticks_that_piled_up_are_dropped_by_one_statement_each(workshop: Workshop) -> None:
    assert begin(workshop) == 0.0
    statements: list[str] = []
    event.listen(
        workshop.database.engine, "before_cursor_execute", lambda *given: statements.append(given[2])
    )
    assert [begin(workshop) for _ in range(50)] == [None] * 50
    assert len([each for each in statements if "ticks" in each]) == 50


def test_a_tick_says_for_how_long_they_have_been_coming(workshop: Workshop) -> None:
    begin(workshop)
    for seconds in (6.0, 12.0):
        step(workshop, 6.0)
        assert begin(workshop) == pytest.approx(seconds, abs=3.0)


@pytest.mark.parametrize("seconds", [GAP_SEC + 5, MINUTES, 3 * 3600.0, -5.0, -MINUTES, -3 * 3600.0])
def test_after_a_gap_or_a_step_of_the_clock_they_begin_anew_at_once(
    workshop: Workshop, seconds: float
) -> None:
    begin(workshop)
    step(workshop, 6.0)
    begin(workshop)
    step(workshop, seconds)
    assert begin(workshop) == 0.0


@pytest.mark.parametrize("lease_sec", [6.0, 60.0, 3600.0])
def test_where_turns_are_rare_the_dead_lose_their_work_all_the_same(
    workshop: Workshop, lease_sec: float
) -> None:
    item = WorkItem.for_planning(1)
    workshop.write(lambda session: Leases(session).claim(item, "w", 1.0))
    for _ in range(3):
        step(workshop, GAP_SEC + 10)
        requeue_expired_leases(workshop.database, Turn(begin(workshop) or 0.0), lease_sec)
    assert not held(workshop, item)


@pytest.mark.parametrize("seconds", [5.0, MINUTES, -5.0, -MINUTES, -3 * 3600.0])
def test_the_living_keep_their_work_when_the_clock_steps_and_the_dead_lose_theirs(
    workshop: Workshop, turns: Callable[[], None], seconds: float
) -> None:
    living, dead = WorkItem.for_planning(1), WorkItem.for_planning(2)
    for item in (living, dead):
        workshop.write(lambda session, item=item: Leases(session).claim(item, "w", LEASE_SEC))
    turns()
    for _ in range(5):
        step(workshop, 5.0)
        turns()
    step(workshop, seconds)
    for _ in range(20):  # a lease, and a third of one
        assert workshop.write(lambda session: Leases(session).renew(LeaseToken(living, 1, "w"), LEASE_SEC))
        turns()
        assert held(workshop, living)
        step(workshop, 5.0)
    turns()
    assert not held(workshop, dead)


def test_what_lies_ahead_of_a_clock_that_was_set_back_is_not_waited_for(
    workshop: Workshop, turns: Callable[[], None]
) -> None:
    job = workshop.job(("w0",))
    workshop.next_round(job)
    workshop.see_device()
    turns()
    step(workshop, -MINUTES)
    turns()
    step(workshop, 25.0)  # longer than a message is waited for
    assert workshop.has_waiting()
    assert (queues.PLAN, job) in collect_jobs_to_plan(workshop.database)
    step(workshop, 10.0)
    assert workshop.read(lambda session: Devices(session).list(30.0)) == []


def test_while_nobody_looked_leases_run_out_that_the_living_renew_first(
    workshop: Workshop, turns: Callable[[], None]
) -> None:
    item = WorkItem.for_planning(1)
    hold = workshop.write(lambda session: Leases(session).claim(item, "w", LEASE_SEC))
    turns()
    step(workshop, 5.0)
    turns()
    step(workshop, 10 * 60.0)  # control, or the database, was away
    turns()
    assert held(workshop, item)
    assert workshop.write(lambda session: Leases(session).renew(hold, LEASE_SEC))


@pytest.mark.parametrize("error", [KeyError("withdraw"), Unavailable("a statement took too long")])
def test_a_part_of_a_turn_that_raises_costs_itself_alone_and_is_told_once(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    job = workshop.job()
    monkeypatch.setattr("mallorn.core.log_setup._logged_sec", {})
    monkeypatch.setattr("mallorn.services.control.periodic_tasks.Rounds.cancel_queued", _raise(error))
    turn = Turn()
    for _ in range(3):
        assert (queues.PLAN, job) in collect_jobs_to_plan(workshop.database, turn)
    assert not turn.whole
    told = [each for each in caplog.records if "are not withdrawn: " in each.getMessage()]
    assert len(told) == 1
    assert told[0].exc_info


@pytest.mark.parametrize("place", [0, 1])
def test_a_job_that_cannot_be_told_of_its_loss_keeps_no_other_from_its_work(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    rounds = [workshop.next_round(workshop.job((name,))) for name in ("w0", "w1")]
    jobs = [workshop.round(each).job_id for each in rounds]
    for round_id in rounds:
        workshop.write(lambda session, at=round_id: Rounds(session).claim(at, "w", -1))
    tell = "mallorn.db.repositories.claim_and_release_work.WorkItems._record_loss"
    monkeypatch.setattr(tell, _raise(ValueError("row"), when=lambda loss: loss.job_id == jobs[place]))
    turn = Turn()
    requeue_expired_leases(workshop.database, turn)
    assert [held(workshop, WorkItem.for_round(each)) for each in rounds] == [place == 0, place == 1]
    assert not turn.whole


@BOTH
def test_work_of_a_kind_that_a_newer_version_holds_is_left_to_it(workshop: Workshop) -> None:
    job = workshop.job(("w0",))
    new = {"kind": "of tomorrow", "subject": "1", "job_id": job, "attempt": 1, "losses": 0, "deaths": 0}
    for times in ({"until": 0.0}, {"due_at": 0.0}):
        row = LeaseRow(**new | times | {"subject": str(times)})
        workshop.write(lambda session, row=row: session.add(row))
    requeue_expired_leases(workshop.database)
    assert collect_jobs_to_plan(workshop.database) == [(queues.PLAN, job)]


@BOTH
def test_a_turn_that_did_not_do_all_counts_as_none(
    workshop: Workshop, turns: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "requeue_expired_leases", _raise(Unavailable("gone")))
        with pytest.raises(Unavailable):
            turns()
    ages = lambda: workshop.read(lambda session: LoopTicks(session).ages_sec([queues.REAP]))  # noqa: E731
    assert ages() == {queues.REAP: None}
    step(workshop, 6.0)
    turns()
    assert ages()[queues.REAP] < 60.0


def test_the_timer_goes_by_no_wall_clock_and_survives_a_broker_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queues, "TICKS", {"a": 5.0, "b": 9.0})
    sent: list[str] = []

    def send(name: str) -> None:
        sent.append(name)
        raise Unavailable("the broker does not answer")

    monkeypatch.setattr(control, "send", send)
    clock, times = [0.0], iter((1.0, 5.0, 9.0, 10.0, 18.0))

    def sleep(seconds: float) -> None:
        assert seconds <= 1.0
        clock[0] = next(times)

    monkeypatch.setattr("mallorn.services.control.app.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("mallorn.services.control.app.time.sleep", sleep)
    monkeypatch.setattr("time.time", lambda: 1e9 - 3600 * clock[0])  # set back by an hour each second
    with pytest.raises(StopIteration):
        control.send_periodic_tasks()
    assert [sent.count(name) for name in ("a", "b")] == [4, 3]


def test_messages_of_the_timer_are_all_periodic_tasks_and_never_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: dict[str, dict[str, object]] = {}
    monkeypatch.setattr(control.app, "send_task", lambda name, **given: sent.update({name: given}))

    def sleep(_seconds: float) -> None:
        raise StopIteration

    monkeypatch.setattr("mallorn.services.control.app.time.sleep", sleep)
    with pytest.raises(StopIteration):
        control.send_periodic_tasks()
    assert sent.keys() == set(queues.TICKS)
    assert all(given == {"args": ()} for given in sent.values())


def _raise(error: Exception, when: Callable[[Any], bool] = lambda _: True) -> Callable[..., Any]:
    def act(_self: Any, *given: Any) -> Any:
        if not given or when(given[0]):
            raise error

    return act
