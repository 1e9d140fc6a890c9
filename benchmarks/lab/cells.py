"""The runs of a comparison: a combination on an arena with a seed."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from benchmarks.lab.grid import Combination
from benchmarks.lab.replay_search import Arena, play

BATCH = 16
Step = tuple[int, float]


@dataclass(frozen=True)
class Cell:
    """One combination on one arena with one seed."""

    kind: str
    arena: str
    combination: Combination
    seed: int
    trials: int


@dataclass(frozen=True)
class Finished:
    """What a run came to. A step: a trial, counted from one, and the ratio to the optimum it improved to."""

    cell: Cell
    played: int
    steps: tuple[Step, ...]
    propose_sec: float
    fit_sec: float

    def trials_to(self, factor: float) -> int | None:
        """The first trial within a factor of the optimum."""
        return next((trial for trial, ratio in self.steps if ratio <= factor), None)

    def after(self, trial: int) -> float:
        """Best so far over the optimum; infinite before the first success."""
        return next((ratio for at, ratio in reversed(self.steps) if at <= trial), float("inf"))


class TvmLoaded(RuntimeError):
    """A replay must not need a compiler, and one was imported."""


def run(arena: Arena, cell: Cell, batch: int = BATCH) -> Finished:
    """Play one cell."""
    if "tvm" in sys.modules:
        raise TvmLoaded
    chosen = cell.combination
    done = play(
        arena, chosen.searcher(), chosen.make_model(), trials=cell.trials, round_size=batch, seed=cell.seed
    )
    if "tvm" in sys.modules:
        raise TvmLoaded
    return Finished(cell, len(done.trials), _steps(done.curve), done.propose_sec, done.fit_sec)


def run_all(work: Sequence[tuple[Arena, Cell]], jobs: int, batch: int = BATCH) -> Iterator[Finished]:
    """Each cell as it comes; in this process, or in several."""
    if jobs == 1:
        yield from (run(arena, cell, batch) for arena, cell in work)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, arena, cell, batch) for arena, cell in work]):
            yield future.result()


def _steps(curve: Sequence[float]) -> tuple[Step, ...]:
    before = [float("inf"), *curve]
    return tuple((at + 1, round(ratio, 5)) for at, ratio in enumerate(curve) if ratio < before[at])


def parse(row: dict[str, Any]) -> Finished:
    """A finished run as it was stored."""
    cell = row["cell"] | {"combination": Combination(**row["cell"]["combination"])}
    return Finished(**row | {"cell": Cell(**cell), "steps": tuple((at, ratio) for at, ratio in row["steps"])})
