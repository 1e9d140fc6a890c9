"""No text that a stranger sends, to whichever route and place, costs more than in proportion to its length.

Routes and places come from the app itself: a new one is covered as it is added.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from benchmarks.growth import KEY, PIECE_BYTES, Case, app_in, ask, cases, peak_of
from mallorn.services.coordinator.web.request_limits import LARGEST_BODY

#: A linear answer takes eight times as long, a quadratic one sixty-four times.
TIMES_AS_LONG = 3  # doublings
MOST_GROWTH = 24
NOISE_SEC = 0.1
MOST_BYTES_PER_BYTE = 400
REFUSED = {401, 403, 413, 431}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    logging.disable(logging.CRITICAL)
    yield app_in(Path(tmp_path_factory.mktemp("growth")))
    logging.disable(logging.NOTSET)


def test_all_routes_are_asked(app: FastAPI) -> None:
    routes = {case.route for case in cases(app)}
    documented = {
        f"{method.upper()} {path}" for path, each in app.openapi()["paths"].items() for method in each
    }
    assert documented <= routes
    assert len(routes) > len(documented) > 40


def test_what_is_too_long_is_refused_and_not_read(app: FastAPI) -> None:
    async def refused(case: Case) -> None:
        request = case.make(case.lengths[-1])
        for key in (KEY, None):
            answer = await ask(app, request, key)
            assert answer.status < 500, (case, answer.body)
            if case.route != "PUT /api/v1/models":  # which takes a mebibyte at a time
                assert answer.taken_bytes <= LARGEST_BODY + PIECE_BYTES, case
            if case.in_body:
                assert answer.taken_bytes == 0 or answer.status == 413, case
                is_login = case.route == "POST /api/v1/session/oidc/key"  # its body is the credential
                assert key or is_login or answer.taken_bytes == 0, f"{case} is read without a key"
            elif "cookie" not in case.place:  # strange ones are left out, however long
                assert answer.status in REFUSED, (case, answer.status)

    each_of(app, refused)


def test_time_grows_with_the_length_alone(app: FastAPI) -> None:
    async def seconds(case: Case, length: int, passes: int) -> float:
        request = case.make(length)
        return min([(await ask(app, request)).seconds for _ in range(passes)])

    async def grows(case: Case) -> None:
        short, long = case.lengths[0], case.lengths[TIMES_AS_LONG]
        if await seconds(case, long, 1) < NOISE_SEC:
            return
        times = 0.0
        for passes in (2, 6):  # a busy machine is given another chance
            long_sec = await seconds(case, long, passes)
            times = long_sec / await seconds(case, short, passes)
            if long_sec < NOISE_SEC or times <= MOST_GROWTH:
                return
        pytest.fail(f"{case}: {times:.0f} times the time for eight times the length")

    each_of(app, grows)


def test_memory_grows_with_the_length_alone(app: FastAPI) -> None:
    async def takes(case: Case) -> None:
        if "unknown fields" in case.place:  # each is an error of its own
            short, long = case.lengths[0], case.lengths[TIMES_AS_LONG]
            least, most = [await peak_of(app, case.make(length)) for length in (short, long)]
            assert most - least < MOST_BYTES_PER_BYTE * (long - short), case

    each_of(app, takes)


def each_of(app: FastAPI, check: Callable[[Case], Awaitable[None]]) -> None:
    async def all_of_them() -> None:
        for case in cases(app):
            await check(case)

    asyncio.run(all_of_them())
