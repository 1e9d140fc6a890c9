"""Commits survive kill -9, a full disk leaves nothing half-done, and no order of calls deadlocks."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import text

from mallorn.core.errors import Conflict, LeaseLost, StorageFull
from mallorn.core.states import JobState, RoundState
from mallorn.core.values.event import OtherEvent
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Leases
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.stored_files import Models
from mallorn.db.session import Database

WRITE_UNTIL_KILLED = """
import sys
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.session import Database
from mallorn.core.values.event import OtherEvent
database = Database(sys.argv[1])
while True:
    with database.transaction() as session:
        seq = Events(session).append(sys.argv[2], OtherEvent(kind="trial", data={"text": "x" * 500}))
    print(seq, flush=True)
"""


def test_what_was_committed_survives_kill_9(rows):
    command = [sys.executable, "-c", WRITE_UNTIL_KILLED, rows.database.url, rows.job_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        for line in writer.stdout:
            if int(line) == 20:
                writer.send_signal(signal.SIGKILL)
                break
        confirmed = max([20, *map(int, writer.stdout.read().split())])
    stored = [event.seq for event in rows.read(lambda session: Events(session).after(rows.job_id, 0, 10_000))]
    assert stored == list(range(1, len(stored) + 1))
    assert len(stored) >= confirmed
    after = OtherEvent(kind="next", data={})
    rows.write(lambda session: Events(session).append(rows.job_id, after))  # no lock was left behind


def test_a_full_disk_is_told_and_leaves_nothing_half_done(sqlite_url):
    database = Database(sqlite_url)

    def fill():
        with database.transaction() as session:
            pages = session.execute(text("PRAGMA page_count")).scalar_one()
            session.execute(text(f"PRAGMA max_page_count = {pages}"))
            for number in range(500):
                Models(session).add(f"{number:064}", "ada", "m" * 500, 1)

    with pytest.raises(StorageFull):
        fill()
    with database.session() as session:
        assert Models(session).list(None).items == []
    database.dispose()


def test_workers_reaper_and_owner_never_deadlock(rows):
    """All who touch a job and its rounds at once: each call ends, if only by being refused."""
    round_id, hold = rows.claimed_round()

    def commit(slot):
        is_last = slot % 2 == 1  # of a round: it waits for the job's row, and locks it first

        def act(session):
            if is_last:
                Jobs(session).lock_jobs([rows.job_id])
            Measurements(session).add_trials(hold, [rows.ok(slot)])
            event = OtherEvent(kind="trial", data={"slot": slot})
            Events(session).append_with_step(rows.job_id, event, None, is_last)

        rows.write(act)

    def steer(slot):
        def act(session):
            Jobs(session).pause(rows.job_id, "ada") if slot % 2 else Jobs(session).resume(rows.job_id, "ada")
            Events(session).append(rows.job_id, OtherEvent(kind="steered", data={}))
            if slot > 15:
                Rounds(session).cancel_open(rows.job_id)

        rows.write(act)

    def reap(_slot):
        rows.write(lambda session: WorkItems(session).end_expired_leases(rows.job_id))

    def renew(_slot):
        rows.write(lambda session: Leases(session).renew(hold, 60))

    def refused(call):
        action, slot = call
        try:
            action(slot)
        except (Conflict, LeaseLost) as error:
            return type(error)

    calls = [(action, slot) for slot in range(20) for action in (commit, steer, reap, renew)]
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(refused, calls))
    stored = rows.read(lambda session: Rounds(session).done_slots(round_id))
    events = rows.read(lambda session: Events(session).after(rows.job_id, 0))
    steered = sum(event.kind == "steered" for event in events)
    announced = {event.payload["slot"] for event in events if event.kind == "trial"}
    assert {slot for slot in stored if slot % 2} <= announced <= set(stored)
    assert outcomes.count(None) == 40 + len(stored) + steered


def test_closing_a_round_and_cancelling_its_job_wait_for_each_other(rows):
    """Had each only its own row when the other's comes next, Postgres would have to break a deadlock."""
    _, hold = rows.claimed_round()
    meeting = threading.Barrier(2)

    def meet():
        with suppress(
            threading.BrokenBarrierError
        ):  # as it should be: the other still waits for its first row
            meeting.wait(0.5)

    def close(session):
        Rounds(session).close(hold, RoundState.DONE)
        meet()
        Events(session).append(rows.job_id, OtherEvent(kind="round", data={}))

    def cancel(session):
        Jobs(session).cancel(rows.job_id, "ada")
        meet()
        Rounds(session).cancel_open(rows.job_id)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(rows.write, action) for action in (close, cancel)]:
            done.result()
    assert rows.read(lambda session: Jobs(session).get(rows.job_id, None).state) == JobState.CANCELLED
