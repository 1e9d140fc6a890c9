"""The runs of a comparison: each is stored once it is finished, and a second start makes only the rest."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks.lab.grid import Combination
from workers.lab.arenas import Arena
from workers.lab.playing import play

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

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.arena}:{self.combination.key}:{self.seed}:{self.trials}"


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


def run(arena: Arena, cell: Cell) -> Finished:
    """Play one cell."""
    if "tvm" in sys.modules:
        raise TvmLoaded
    chosen = cell.combination
    done = play(
        arena, chosen.searcher(), chosen.make_model(), trials=cell.trials, batch=BATCH, seed=cell.seed
    )
    if "tvm" in sys.modules:
        raise TvmLoaded
    return Finished(cell, len(done.trials), _steps(done.curve), done.propose_sec, done.fit_sec)


class CellFile:
    """Finished cells as JSON lines; without a path they are kept for this run only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        self._done = {finished.cell.key: finished for finished in map(_parse, lines)}

    def __contains__(self, cell: Cell) -> bool:
        return cell.key in self._done

    def add(self, finished: Finished) -> None:
        self._done[finished.cell.key] = finished
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as lines:
                lines.write(json.dumps(asdict(finished)) + "\n")

    def of(self, cells: Iterable[Cell]) -> list[Finished]:
        """Those of some cells that are finished."""
        return [self._done[cell.key] for cell in cells if cell.key in self._done]


def run_all(work: Sequence[tuple[Arena, Cell]], jobs: int) -> Iterator[Finished]:
    """Each cell as it comes; in this process, or in several."""
    if jobs == 1:
        yield from (run(arena, cell) for arena, cell in work)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, arena, cell) for arena, cell in work]):
            yield future.result()


def _steps(curve: Sequence[float]) -> tuple[Step, ...]:
    before = [float("inf"), *curve]
    return tuple((at + 1, round(ratio, 5)) for at, ratio in enumerate(curve) if ratio < before[at])


def _parse(line: str) -> Finished:
    row = json.loads(line)
    cell = row["cell"] | {"combination": Combination(**row["cell"]["combination"])}
    return Finished(**row | {"cell": Cell(**cell), "steps": tuple((at, ratio) for at, ratio in row["steps"])})
