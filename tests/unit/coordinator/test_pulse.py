"""Whoever follows a job is woken when that has moved; all of them ask together, and do nothing else."""

from collections.abc import Callable
from threading import Event

import anyio
import pytest

from mallorn.core.errors import Unavailable
from mallorn.core.states import JobState
from mallorn.core.values.event import OtherEvent
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.services.coordinator.web import event_poller as module
from mallorn.services.coordinator.web.event_poller import EventPoller
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.waiting import PATIENCE

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def pulse(owned: OwnedRows, monkeypatch: pytest.MonkeyPatch) -> EventPoller:
    monkeypatch.setattr(module, "FRESH_SEC", 0.01)
    return EventPoller(owned.database, Event())


@pytest.fixture
def asked(owned: OwnedRows, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each question was about."""
    found: list[int] = []
    marks = Jobs.read_event_marks

    def counted(jobs: Jobs, job_ids: list[str]) -> object:
        found.append(len(job_ids))
        return marks(jobs, job_ids)

    monkeypatch.setattr(Jobs, "read_event_marks", counted)
    return found


async def heard(pulse: EventPoller, job_id: str, after: int) -> bool:
    """Waits until the job moves."""
    with pulse.follow_job(job_id):
        while not await pulse.wait_for_events(job_id, after, PATIENCE):
            pass
    return True


def append(owned: OwnedRows) -> None:
    owned.write(lambda session: Events(session).append(owned.job_id, OtherEvent(kind="x", data={})))


async def until(said: Callable[[], object]) -> None:
    with anyio.fail_after(PATIENCE):
        while not said():
            await anyio.sleep(0.01)


def test_a_job_that_rests_has_not_moved(owned: OwnedRows, pulse: EventPoller, asked: list[int]) -> None:
    async def follow() -> list[bool]:
        with pulse.follow_job(owned.job_id):
            found = [await pulse.wait_for_events(owned.job_id, 0)]
            await until(lambda: len(asked) > 2)
            found.append(await pulse.wait_for_events(owned.job_id, 0))
            append(owned)
            return [*found, await heard(pulse, owned.job_id, 0), await pulse.wait_for_events(owned.job_id, 1)]

    assert anyio.run(follow) == [False, False, True, False]


def test_one_that_ended_or_is_gone_has(owned: OwnedRows, pulse: EventPoller) -> None:
    owned.write(lambda session: Jobs(session).move_to_state(owned.job_id, list(JobState), JobState.DONE))

    async def follow() -> list[bool]:
        return [await heard(pulse, owned.job_id, 99), await heard(pulse, "gone", 0)]

    assert anyio.run(follow) == [True, True]


def test_a_thousand_watchers_ask_one_question_a_beat_and_are_woken_by_news_alone(
    owned: OwnedRows, pulse: EventPoller, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = owned.write(lambda session: owned.add_job(session, "bob", ("w0",)))
    looks: list[str] = []
    may_have = EventPoller.may_have

    def counted(one: EventPoller, job_id: str, after: int) -> bool:
        looks.append(job_id)
        return may_have(one, job_id, after)

    monkeypatch.setattr(EventPoller, "may_have", counted)

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for number in range(1000):
                group.start_soon(heard, pulse, (owned.job_id, other)[number % 2], 0)
            await until(lambda: len(asked) > 2)
            looks.clear()
            asked.clear()
            await until(lambda: len(asked) > 10)
            assert (looks, set(asked)) == ([], {2})
            append(owned)
            await until(lambda: len(looks) == 500)
            group.cancel_scope.cancel()

    anyio.run(all_of_them)
    assert set(looks) == {owned.job_id}


def test_nobody_asks_about_what_nobody_follows(
    owned: OwnedRows, pulse: EventPoller, asked: list[int]
) -> None:
    async def follow() -> int:
        append(owned)
        await heard(pulse, owned.job_id, 0)
        before = len(asked)
        await pulse.wait_for_events("another", 0)
        return len(asked) - before

    assert anyio.run(follow) <= 1
    assert set(asked) <= {0, 1}


def test_those_who_read_the_same_read_it_once(owned: OwnedRows, pulse: EventPoller) -> None:
    reads: list[int] = []

    async def read() -> int:
        await anyio.sleep(0)
        reads.append(1)
        return len(reads)

    async def all_of_them() -> list[int]:
        found: list[int] = []

        async def one() -> None:
            found.append(await pulse.share_concurrent_call("events", read))

        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(one)
        return [*found, await pulse.share_concurrent_call("events", read)]

    assert anyio.run(all_of_them) == [1] * 100 + [2]


def test_a_process_that_stops_wakes_everybody(owned: OwnedRows) -> None:
    stopping = Event()
    pulse = EventPoller(owned.database, stopping)

    async def follow() -> bool:
        with pulse.follow_job(owned.job_id):
            stopping.set()
            return await pulse.wait_for_events(owned.job_id, 0, PATIENCE)

    assert anyio.run(follow) is False


@pytest.mark.parametrize("error", [Unavailable("away"), KeyError("a fault of ours"), MemoryError()])
def test_whatever_one_look_raises_is_told_and_the_next_one_comes(
    owned: OwnedRows, pulse: EventPoller, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    answers: list[object] = [
        error,
        {owned.job_id: (1, "a state of tomorrow")},
        {owned.job_id: (2, "a state of tomorrow")},
    ]
    troubles: list[str] = []

    def answer(_jobs: Jobs, _job_ids: list[str]) -> object:
        troubles.append(pulse.trouble)
        said = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(said, Exception):
            raise said
        return said

    monkeypatch.setattr(Jobs, "read_event_marks", answer)
    assert anyio.run(heard, pulse, owned.job_id, 1)
    assert any(troubles)
    assert not pulse.trouble
