"""A race that something disturbed is held again, a few times, and what remains is told."""

from dataclasses import replace

import pytest

from mallorn.core.values.finish_report import Conditions
from mallorn.workers.host.load_meter import Load
from mallorn.workers.whole_model import interleaved_timing
from mallorn.workers.whole_model.interleaved_timing import MOST_RACES, FairRace, time_undisturbed
from tests.unit.measure.test_engine_race import Engine
from tests.unit.workers.test_host_load import QUIET

BUSY = replace(QUIET, others_cores=1.0)


class Weather:
    """A host as busy as told, one race after another."""

    def __init__(self, *loads: Load) -> None:
        self._loads = list(loads)
        self._looks = 0

    def read_load(self) -> Load:
        self._looks += 1
        return self._loads[min((self._looks - 1) // 2, len(self._loads) - 1)]


class Uneven(Engine):
    """An engine whose bursts take what a list says, over and over."""

    def __init__(self, *bursts_us: float) -> None:
        super().__init__("uneven", 0.0, [])
        self._bursts_us = bursts_us
        self._count = -1  # the first burst only finds out how long a call takes

    def time_bursts(self, bursts: int, number: int) -> list[float]:
        self._count += 1
        return [self._bursts_us[(self._count - 1) % len(self._bursts_us)]]


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a race would have waited for a quiet host, each time."""
    patience: list[float] = []
    monkeypatch.setattr(interleaved_timing, "wait_for_quiet", lambda _, seconds: patience.append(seconds))
    return patience


def held(weather: Weather, engine: Engine | None = None, alone: bool = True) -> FairRace:
    return time_undisturbed({"tuned": engine or Engine("tuned", 5.0, [])}, weather.read_load, alone)


def test_on_a_quiet_host_one_race_is_enough() -> None:
    found = held(Weather(QUIET))
    assert (found.races, found.latency_us["tuned"].median) == (1, 5.0)
    assert found.conditions == Conditions(steady=True, note="")


def test_a_disturbed_race_is_held_again_when_it_is_quiet(waits: list[float]) -> None:
    found = held(Weather(BUSY, QUIET))
    assert (found.races, len(waits)) == (2, 1)
    assert found.conditions.steady


def test_on_a_host_that_stays_busy_the_quietest_race_counts_and_why_is_told() -> None:
    found = held(Weather(BUSY, replace(QUIET, others_cores=0.5), BUSY))
    assert found.races == MOST_RACES
    assert found.conditions == Conditions(
        steady=False,
        note="While the whole model was timed, other programs used 0.5 of 2 cores. "
        "It was timed 3 times, and the quietest counts.",
    )


def test_bursts_far_apart_are_a_disturbance_of_their_own() -> None:
    found = held(Weather(QUIET), Uneven(0.55e6, 7.3e6))
    assert not found.conditions.steady
    assert "the slowest burst of tuned took 13.3 times as long as its fastest" in found.conditions.note


def test_an_engine_far_behind_is_not_called_again_in_a_later_race() -> None:
    calls: list[tuple[str, int | str]] = []
    engines = {"tuned": Engine("tuned", 1e3, calls), "untuned": Engine("untuned", 9e6, calls)}
    found = time_undisturbed(engines, Weather(BUSY, BUSY, QUIET).read_load, is_alone=True)
    assert found.races == MOST_RACES
    assert found.latency_us["untuned"].bursts == [9e6]
    assert [name for name, what in calls if isinstance(what, int)].count("untuned") == 1


def test_work_beside_the_race_is_told() -> None:
    assert "other work of this service" in held(Weather(QUIET), alone=False).conditions.note
