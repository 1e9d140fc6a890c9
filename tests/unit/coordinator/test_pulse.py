"""Whoever follows a job asks the database only when something of it moved, and all of them ask together."""

import anyio
import pytest

from db.repositories.events import Events
from db.repositories.jobs import Jobs
from mallorn.core.errors import Unavailable
from mallorn.core.states import JobState
from mallorn.core.values.event import OtherEvent
from services.coordinator.web import pulse as module
from services.coordinator.web.pulse import Pulse
from tests.fixtures.coordinator import OwnedRows

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def asked(owned: OwnedRows, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each question was about."""
    found: list[int] = []
    marks = Jobs.marks

    def counted(jobs: Jobs, job_ids: list[str]) -> object:
        found.append(len(job_ids))
        return marks(jobs, job_ids)

    monkeypatch.setattr(Jobs, "marks", counted)
    return found


def test_a_job_that_rests_has_not_moved(owned: OwnedRows) -> None:
    pulse = Pulse(owned.database)

    async def follow() -> list[bool]:
        with pulse.following(owned.job_id):
            found = [await pulse.moved(owned.job_id, 0)]
            owned.write(lambda session: Events(session).append(owned.job_id, OtherEvent(kind="x", data={})))
            await anyio.sleep(module.FRESH_SEC)
            return [*found, await pulse.moved(owned.job_id, 0), await pulse.moved(owned.job_id, 1)]

    assert anyio.run(follow) == [False, True, False]


def test_one_that_ended_or_is_gone_has(owned: OwnedRows) -> None:
    owned.write(lambda session: Jobs(session).move(owned.job_id, list(JobState), JobState.DONE))
    pulse = Pulse(owned.database)

    async def follow() -> list[bool]:
        with pulse.following(owned.job_id), pulse.following("gone"):
            return [await pulse.moved(owned.job_id, 99), await pulse.moved("gone", 0)]

    assert anyio.run(follow) == [True, True]


def test_a_hundred_watchers_ask_one_question(owned: OwnedRows, asked: list[int]) -> None:
    other = owned.write(lambda session: owned.add_job(session, "bob", ("w0",)))
    pulse = Pulse(owned.database)

    async def follow(job_id: str) -> None:
        with pulse.following(job_id):
            await anyio.sleep(0)
            await pulse.moved(job_id, 0)

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(follow, (owned.job_id, other)[number % 2])

    anyio.run(all_of_them)
    assert asked == [2]


def test_nobody_asks_about_what_nobody_follows(owned: OwnedRows, asked: list[int]) -> None:
    pulse = Pulse(owned.database)

    async def follow() -> None:
        with pulse.following(owned.job_id):
            await pulse.moved(owned.job_id, 0)
        await anyio.sleep(module.FRESH_SEC)
        await pulse.moved("another", 0)

    anyio.run(follow)
    assert asked == [1, 0]


@pytest.mark.parametrize("error", [Unavailable("away"), KeyError("a fault of ours"), MemoryError()])
def test_whatever_one_look_raises_is_told_and_the_next_one_comes(
    owned: OwnedRows, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    pulse = Pulse(owned.database)
    answers: list[object] = [error, {owned.job_id: (1, "a state of tomorrow")}]

    def answer(_jobs: Jobs, _job_ids: list[str]) -> object:
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    monkeypatch.setattr(Jobs, "marks", answer)

    async def follow() -> list[bool]:
        with pulse.following(owned.job_id):
            found = [await pulse.moved(owned.job_id, 1)]
            assert pulse.trouble
            await anyio.sleep(module.FRESH_SEC)
            return [*found, await pulse.moved(owned.job_id, 1)]

    assert anyio.run(follow) == [True, False]
    assert not pulse.trouble
