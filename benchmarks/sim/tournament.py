"""Every policy on every model, many seeds, few and many devices; and what that comes to."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, log
from typing import Final

from benchmarks.sim.curves import ModelCurves
from benchmarks.sim.fitted import left_out
from benchmarks.sim.oracle import fewest_trials
from benchmarks.sim.play import Run, play
from benchmarks.sim.state import new_job
from benchmarks.sim.synthetic import SHAPES

FACTORS: Final = (1.05, 1.02)
SHARES: Final = (0.1, 0.25, 0.5, 0.75, 1.0)
RECORDED: Final = "recorded"
SYNTHETIC: Final = "synthetic"


@dataclass(frozen=True)
class Arena:
    """One model: the curves that a seed plays on."""

    kind: str
    name: str
    recordings: tuple[ModelCurves, ...] = ()  # a drawn model has none: it is drawn anew for every seed

    def curves(self, seed: int) -> ModelCurves:
        """Seeds take the recordings in turn."""
        if self.kind == SYNTHETIC:
            return SHAPES[self.name](seed)
        return self.recordings[seed % len(self.recordings)]


@dataclass(frozen=True)
class Cell:
    """All seeds of one policy on one model with so many devices."""

    kind: str
    model: str
    policy: str
    devices: int
    runs: tuple[Run, ...]

    def trials_to(self, factor: float) -> float:
        return geometric_mean([run.trials_to(factor) for run in self.runs])

    def seconds_to(self, factor: float) -> float:
        return geometric_mean([run.seconds_to(factor) for run in self.runs])

    def reached(self, factor: float) -> int:
        return sum(run.reached(factor) for run in self.runs)

    def regret(self, share: float) -> float:
        return sum(run.regret(share) for run in self.runs) / len(self.runs)

    @property
    def decisions_per_sec(self) -> float:
        return sum(run.decisions for run in self.runs) / sum(run.planning_sec for run in self.runs)


def arenas(recorded: Mapping[str, Sequence[ModelCurves]], synthetic: bool) -> list[Arena]:
    """The recorded models, then the drawn ones."""
    found = [Arena(RECORDED, name, tuple(curves)) for name, curves in recorded.items()]
    return [*found, *(Arena(SYNTHETIC, name) for name in SHAPES if synthetic)]


def tournament(
    over: Sequence[Arena],
    policies: Sequence[str],
    devices: Sequence[int],
    seeds: int,
    round_size: int | None = None,
) -> Iterator[Cell]:
    """One cell at a time, so that whoever waits sees it come."""
    for arena, count, policy in product(over, devices, policies):
        with left_out(arena.name):
            runs = _runs(arena, policy, range(seeds), count, round_size)
        yield Cell(arena.kind, arena.name, policy, count, tuple(runs))


def _runs(arena: Arena, policy: str, seeds: Iterable[int], devices: int, round_size: int | None) -> list[Run]:
    """One run a seed. Who decides alike with two seeds on the same curves is not asked again."""
    runs: list[Run] = []
    played = defaultdict[int, list[Run]](list)
    for seed in seeds:
        curves = arena.curves(seed)
        before = played[id(curves)] if arena.kind == RECORDED else []
        if len(before) > 1 and before[0].steps == before[1].steps:
            runs.append(before[0])
        else:
            runs.append(_run(curves, policy, seed, devices, round_size))
            before.append(runs[-1])
    return runs


def _run(curves: ModelCurves, policy: str, seed: int, devices: int, round_size: int | None) -> Run:
    # As control does it: a round for every worker, and one more, so that none waits for the planner.
    job = new_job(curves, policy, seed, max_open_rounds=devices + 1, round_size=round_size)
    return play(job, devices, curves.final_us)


def oracle(arena: Arena, seeds: int) -> dict[float, float]:
    """By factor: the fewest trials that would do, as the figures of a cell are made."""
    drawn = [arena.curves(seed) for seed in range(seeds)]
    return {factor: geometric_mean([max(1, fewest_trials(c, factor)) for c in drawn]) for factor in FACTORS}


def geometric_mean(values: Sequence[float]) -> float:
    return exp(sum(log(value) for value in values) / len(values))
