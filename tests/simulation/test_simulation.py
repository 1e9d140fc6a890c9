"""Some dozen seeds of the whole service, and that the simulation would find what it is there for."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.campaign import Failure, opened, seeds_until_found, shrunk
from tests.simulation.kinds import Kind
from tests.simulation.shrinking import fewest
from tests.simulation.storage import Storage
from tests.simulation.weather import Fault, draw
from tests.simulation.world import Scenario, simulate

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SEEDS, MORE = 40, 120  # of all tests of this kind together
PARTS = 8  # so that they run side by side
SIDE_BY_SIDE = [range(part, SEEDS, PARTS) for part in range(PARTS)]
LONG = [
    pytest.param(range(seed, MORE, PARTS), marks=pytest.mark.long) for seed in range(SEEDS, SEEDS + PARTS)
]
#: Bugs that it takes dozens of seeds to find.
LATE = {
    "a commit applied twice",
    "a store that is away taken for a fault",
    "what devices say believed",
    "faults of a host taken for losses",
}
#: The seeds that found them when they were last looked for, which are tried first.
FOUND = {
    "a schedule promoted without its check": 8,
    "the check for duplicates removed": 21,
    "private rows exported": 5,
    "ticks that expire by another's clock": 1,
    "a read-only database taken for a fault": 6,
    "a turn that raises ends everybody's": 3,
    "options of a newer version refused": 2,
    "claims fenced by their number alone": 40,
    "times of any class of device": 7,
}
PLANTED = [pytest.param(name, marks=pytest.mark.long) if name in LATE else name for name in BUGS]
ON_POSTGRES = [range(6), pytest.param(range(6, 16), marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    with opened() as storage:
        yield storage


@pytest.mark.parametrize("seeds", [*SIDE_BY_SIDE, *LONG], ids=str)
def test_every_law_holds_whatever_the_weather(storage: Storage, seeds: range) -> None:
    for seed in seeds:
        outcome = simulate(storage, Scenario.of(seed))
        assert not outcome.broken, str(shrunk(storage, outcome))


@pytest.mark.postgres
@pytest.mark.parametrize("seeds", ON_POSTGRES, ids=str)
def test_every_law_holds_on_postgres_where_transactions_overlap(seeds: range) -> None:
    with opened("postgres") as storage:
        for seed in seeds:
            outcome = simulate(storage, Scenario.of(seed))
            assert not outcome.broken, str(shrunk(storage, outcome))
        assert storage.waits > 0, "somebody waited for a lock that another held, and let others run"


def test_a_quiet_run_is_soon_over_and_breaks_nothing(storage: Storage) -> None:
    outcome = simulate(storage, Scenario.of(1, only=[]))
    assert not outcome.broken
    assert outcome.history.of("end")[0].at_sec < 120


@pytest.mark.parametrize("seed", [3, 11, 42])
def test_a_seed_has_one_history(storage: Storage, seed: int) -> None:
    assert len({simulate(storage, Scenario.of(seed)).digest for _ in range(2)}) == 1


def test_a_seed_has_the_same_history_in_another_process(storage: Storage) -> None:
    digest = simulate(storage, Scenario.of(7)).digest
    words = [sys.executable, "-W", "ignore", "-m", "tests.simulation", "--seed", "7"]
    hashes = os.environ | {"PYTHONHASHSEED": "12345"}
    told = subprocess.run(words, capture_output=True, text=True, check=False, env=hashes)
    assert f"history {digest[:16]}" in told.stdout


def test_two_seeds_have_different_histories(storage: Storage) -> None:
    assert simulate(storage, Scenario.of(1)).digest != simulate(storage, Scenario.of(2)).digest


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(storage: Storage, name: str) -> None:
    assert seeds_until_found(storage, name, [FOUND.get(name, 0), *range(100)]) is not None


def test_a_failing_seed_is_shrunk_and_told_with_the_command_that_replays_it(storage: Storage) -> None:
    bug, law = BUGS["a lost wake-up, and nobody looks"]
    with bug():
        seed = next(seed for seed in range(60) if simulate(storage, Scenario.of(seed)).broken)
        failure = shrunk(storage, simulate(storage, Scenario.of(seed)))
        places = failure.command.partition("--faults ")[2]
        only = [int(place) for place in places.split(",") if place.isdigit()] if places else None
        again = simulate(storage, Scenario.of(seed, only))
    assert isinstance(failure, Failure)
    assert len(failure.faults) <= len(draw(seed))
    assert tuple(again.broken) == failure.broken
    assert failure.command in str(failure)
    assert any(law in words for words in failure.broken)


def test_the_fewest_faults_are_those_that_are_needed_together() -> None:
    faults = [Fault(Kind.KILL, float(at), 0, 1.0, 1) for at in range(9)]
    needed = {faults[2], faults[7]}
    assert set(fewest(faults, lambda left: needed <= set(left))) == needed
    assert fewest(faults, lambda left: True) == []
