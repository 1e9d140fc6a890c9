"""Many seeds on all cores; what fails is shrunk and printed with the command that replays it."""

import gc
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor  # noqa: TID251 - our own seeds and results
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context  # noqa: TID251
from typing import Final

from tests.simulation.bugs import BUGS
from tests.simulation.postgres import PostgresStorage
from tests.simulation.shrinking import fewest
from tests.simulation.storage import SqliteStorage, Storage
from tests.simulation.world import Outcome, Scenario, simulate

SOME: Final = 25  # seeds that one process takes at a time
MOST_SEEDS: Final = 1000  # in which a planted bug has to be found
DATABASES: Final[dict[str, Callable[[], Storage]]] = {"sqlite": SqliteStorage, "postgres": PostgresStorage}


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that breaks a law, with the fewest faults that do it."""

    seed: int
    command: str
    faults: tuple[str, ...]
    broken: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed} breaks:", *(f"  {words}" for words in self.broken), "with"]
        return "\n".join([*lines, *(f"  {fault}" for fault in self.faults), f"again: {self.command}"])


@contextmanager
def opened(database: str = "sqlite") -> Iterator[Storage]:
    """A storage, quietly: the product logs every fault that it meets."""
    logging.disable(logging.CRITICAL)
    storage = DATABASES[database]()
    gc.freeze()
    try:
        yield storage
    finally:
        storage.close()
        logging.disable(logging.NOTSET)


def shrunk(storage: Storage, outcome: Outcome) -> Failure:
    """What is left of a failing run when every fault that does not matter is taken away."""
    scenario = outcome.scenario

    def broken(faults: object) -> bool:
        return bool(simulate(storage, scenario.with_faults(tuple(faults))).broken)  # type: ignore[arg-type]

    least = scenario.with_faults(fewest(scenario.faults, broken))
    again = simulate(storage, least)
    return Failure(least.seed, least.command + storage.words, tuple(map(str, least.faults)), again.broken)


def failures(first: int, count: int, database: str = "sqlite") -> list[Failure]:
    """Those of some seeds."""
    with warnings.catch_warnings(), opened(database) as storage:
        warnings.simplefilter("ignore")
        outcomes = (simulate(storage, Scenario.of(seed)) for seed in range(first, first + count))
        return [shrunk(storage, outcome) for outcome in outcomes if outcome.broken]


def seeds_until_found(storage: Storage, name: str, seeds: Iterable[int] = range(MOST_SEEDS)) -> int | None:
    """How many of the seeds it takes to find a planted bug, by the law that it breaks; None: more."""
    bug, law = BUGS[name]
    with bug():
        for count, seed in enumerate(seeds, 1):
            if any(law in words for words in simulate(storage, Scenario.of(seed)).broken):
                return count
    return None


def campaign(first: int, count: int, bugs: bool, database: str) -> int:
    """Run it on all cores, and print what came of it."""
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        return _find_bugs(pool, database) if bugs else _run_seeds(pool, first, count, database)


def _run_seeds(pool: ProcessPoolExecutor, first: int, count: int, database: str) -> int:
    started = time.monotonic()
    starts = range(first, first + count, SOME)
    sizes = [min(SOME, first + count - start) for start in starts]
    failed = 0
    for done, found in enumerate(pool.map(partial(failures, database=database), starts, sizes), 1):
        failed += len(found)
        for failure in found:
            print(failure, flush=True)
        if done % 20 == 0:
            print(f"{min(done * SOME, count)} seeds, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{count} seeds in {time.monotonic() - started:.0f} s, {failed} of them break a law")
    return 1 if failed else 0


def _find_bugs(pool: ProcessPoolExecutor, database: str) -> int:
    searches = {name: pool.submit(partial(_search, name, database)) for name in BUGS}
    missed = 0
    for name, search in searches.items():
        found = search.result()
        missed += found is None
        print(f"{name}: {'not found' if found is None else f'seeds until found: {found}'}", flush=True)
    return 1 if missed else 0


def _search(name: str, database: str) -> int | None:
    with opened(database) as storage:
        return seeds_until_found(storage, name)
