"""A worker does as many rounds at a time as keep its builders, or itself, busy."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.values.trial import Trial
from mallorn.searchers.space import Candidate
from mallorn.workers.process.places import MOST_PLACES, CostMeter, Places, RoundCost
from mallorn.workers.subprocesses.shutdown import STOP, ShutdownRequested


@pytest.mark.parametrize(
    ("cost", "builders", "width", "reason"),
    [
        (RoundCost(0.3, 4.8, 8.0), 4, 7, "4 builders feed 7 devices"),
        (RoundCost(0.3, 4.8, 80.0), 4, 63, "slower devices need less"),
        (RoundCost(0.3, 4.8, 0.1), 4, 2, "one round proposes while the other is built"),
        (RoundCost(0.25, 0.0, 8.0), 8, 66, "without builds, twice what this process's own work allows"),
        (RoundCost(0.3, 0.0, 0.0), 8, 2, "one round waits for the database while the other proposes"),
        (RoundCost(0.0, 0.0, 0.0), 8, 1, "nothing is known"),
    ],
)
def test_the_width_follows_from_what_rounds_cost(
    cost: RoundCost, builders: int, width: int, reason: str
) -> None:
    assert cost.best_width(builders) == width, reason


def meter(candidates: int, build_ms: float, run_ms: float) -> CostMeter:
    """A round of which so many candidates are measured, in a millisecond of the thread's time or more."""
    found = CostMeter()
    until_sec = time.thread_time() + 0.001
    while time.thread_time() < until_sec:
        pass
    for _ in range(candidates):
        found.add(Trial(Candidate("s", (1,)), Outcome.OK, build_ms=build_ms, run_ms=run_ms))
    return found


def test_the_first_candidate_of_the_first_round_sets_a_width_and_later_rounds_correct_it() -> None:
    told: list[int] = []
    places = Places(object, most=50)
    places.on_width = told.append
    places.adapt_width(meter(1, build_ms=900.0, run_ms=1000.0), size=16, builders=8)
    assert places.width == 9, "a round of 16 s needs builders for 14.4 s"
    places.adapt_width(meter(15, build_ms=1000.0, run_ms=10_000.0), size=16, builders=8)
    assert told == [9], "a round that is not over changes nothing any more"
    for _ in range(20):
        places.adapt_width(meter(16, build_ms=1000.0, run_ms=0.0), size=16, builders=8)
    assert places.width == told[-1] == 2
    places.adapt_width(meter(16, build_ms=0.0, run_ms=1e6), size=16, builders=8)
    assert places.width == 50, "no more than this host has memory for"


@pytest.mark.parametrize(("most", "width"), [(0, 1), (10**6, MOST_PLACES)])
def test_a_worker_has_at_least_a_place_and_no_more_than_celery_has_threads(most: int, width: int) -> None:
    places = Places(object, most)
    places.adapt_width(meter(16, build_ms=0.0, run_ms=1e9), size=16, builders=8)
    assert places.width == width


def test_a_place_is_furnished_once_and_serves_one_at_a_time() -> None:
    places = Places(object)
    places.width = 2
    with places.take() as one, places.take() as other:
        assert one is not other
        assert places.taken == places.width
    with places.take() as again:
        assert again in places.all
        assert places.taken < places.width
    assert len(places.all) == 2


def test_many_rounds_commit_more_seldom_so_that_all_together_commit_four_times_a_second() -> None:
    places = Places(object)
    places.width = 64
    with ExitStack() as taken:
        assert places.commit_sec == 3.0
        for _ in range(40):
            taken.enter_context(places.take())
        assert places.commit_sec == 10.0
    assert places.commit_sec == 3.0


def test_who_finds_no_place_waits_until_one_is_free() -> None:
    places, waits = Places(object), Event()

    def take() -> object:
        waits.set()
        with places.take() as place:
            return place

    with ThreadPoolExecutor() as pool:
        with places.take() as place:
            next_one = pool.submit(take)
            assert waits.wait(30)
            assert not next_one.done()
        assert next_one.result(30) is place


def test_a_wider_worker_lets_those_in_who_wait() -> None:
    places = Places(object)
    with ThreadPoolExecutor() as pool, places.take():
        next_one = pool.submit(lambda: places.take().__enter__())
        places.adapt_width(meter(16, build_ms=0.0, run_ms=1000.0), size=16, builders=1)
        assert next_one.result(30) is not None


def test_nobody_waits_for_a_place_of_a_worker_that_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STOP, "requested", Event())
    places = Places(object)
    with places.take():
        STOP.requested.set()
        with pytest.raises(ShutdownRequested), places.take():
            pass
