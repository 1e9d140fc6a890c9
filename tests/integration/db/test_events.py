"""Events are numbered in commit order: who resumes after a number misses nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mallorn.core.errors import NotFound
from mallorn.core.values.event import OtherEvent
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.session import read_clock

WRITERS, EACH = 4, 15


def append(rows, kind="trial", payload=None, pause=None):
    def act(session):
        seq = Events(session).append(rows.job_id, OtherEvent(kind=kind, data=payload or {}))
        if pause is not None:
            pause.wait(0.005)  # a commit that lags behind its number
            read_clock(session)
        return seq

    return rows.write(act)


def test_numbers_follow_each_other_from_one(rows):
    assert [append(rows, payload={"n": n}) for n in range(3)] == [1, 2, 3]
    found = rows.read(lambda session: Events(session).after(rows.job_id, 1))
    assert [(event.seq, event.payload) for event in found] == [(2, {"n": 1}), (3, {"n": 2})]


def test_a_rolled_back_event_leaves_no_gap(rows):
    lost = OtherEvent(kind="lost", data={})
    with pytest.raises(ZeroDivisionError):
        rows.write(lambda session: 1 / (Events(session).append(rows.job_id, lost) - 1))
    assert append(rows) == 1


def test_an_event_of_no_job_is_not_found(rows):
    with pytest.raises(NotFound):
        rows.write(lambda session: Events(session).append("none", OtherEvent(kind="trial", data={})))


def test_a_reader_beside_many_writers_skips_nothing(rows):
    done, never = threading.Event(), threading.Event()
    seen: list[int] = []

    def read_on():
        while True:
            last_look = done.is_set()
            with rows.database.session() as session:
                found = Events(session).after(rows.job_id, seen[-1] if seen else 0)
            seen.extend(event.seq for event in found)
            if last_look:
                return

    def write_some(_):
        for _ in range(EACH):
            append(rows, pause=never)

    reader = threading.Thread(target=read_on)
    reader.start()
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write_some, range(WRITERS)))
    done.set()
    reader.join()
    assert seen == list(range(1, WRITERS * EACH + 1))
