"""The gaps of every task: guesses to oracle, oracle to roofline, ours to oracle."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.oracle.stream import read_trials
from mallorn.core.values.machine import element_bytes
from mallorn.core.values.trial import Trial

CHECKPOINTS = (64, 256)
GUESSES = 3  # that a job without trials times
GAPS = (
    *("first guess", "best of three", "defaults", "oracle/roofline"),
    *(f"{arm} {count}" for arm in ("ours", "chance") for count in CHECKPOINTS),
)


@dataclass(frozen=True, slots=True)
class Gaps:
    """One task on a target, in microseconds; what arms found by trials, defaults included."""

    model: str
    op: str
    target: str
    candidates: int
    first_us: float
    guesses_us: float
    defaults_us: float
    oracle_us: float
    roofline_us: float
    ours_us: dict[int, float]
    chance_us: dict[int, float]

    @property
    def kind(self) -> str:
        return str(json.loads(self.target).get("mcpu", self.target))

    @property
    def figures(self) -> tuple[float, ...]:
        """In the order of `GAPS`: what search could win, how the space must grow, what was found."""
        found = [times[count] for times in (self.ours_us, self.chance_us) for count in CHECKPOINTS]
        guessed = (self.first_us, self.guesses_us, self.defaults_us)
        over = [time / self.oracle_us for time in (*guessed, *found)]
        return *over[: len(guessed)], self.oracle_us / self.roofline_us, *over[len(guessed) :]


def gaps_of(path: Path) -> Gaps:
    """A finished cell's gaps; arms at checkpoints are on the scale of the contest, where all met again."""
    cell = json.loads(path.read_text())
    trials = list(read_trials(path.with_suffix(".jsonl")))
    best = {arm: time for arm, time in cell["best_us"].items() if time is not None}
    ours, chance = (_found(trials, arm, best) for arm in ("ours", "chance"))
    guesses = [each.time_us for each in trials if each.origin.startswith("default/") and each.time_us]
    return Gaps(
        model=cell["model"],
        op=cell["task"]["op"],
        target=cell["target"],
        candidates=cell["candidates"],
        first_us=cell["first_us"],
        guesses_us=max(best["default"], cell["first_us"] * min(guesses[:GUESSES]) / guesses[0]),
        defaults_us=best["default"],
        oracle_us=min(best.values()),
        roofline_us=roofline_us(cell),
        ours_us=ours,
        chance_us=chance,
    )


def roofline_us(cell: dict[str, Any]) -> float:
    """The longer of computing at the peak, and of reading and writing every argument once."""
    args = cell["task"]["args"]["args"]
    moved = sum(element_bytes(dtype) * math.prod(shape) for _, dtype, shape in args)
    return (
        float(max(cell["task"]["flops"] / cell["peak_gflops"], moved / cell["memory_gbytes_per_sec"])) / 1e3
    )


def geometric(values: Iterable[float]) -> float:
    """Their geometric mean; not a number where there are none."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _found(trials: Sequence[Trial], arm: str, contest: dict[str, float]) -> dict[int, float]:
    """The best after so many trials, defaults first, scaled by what the arm's best took in the contest.

    Not above the defaults, which are timed again in every contest.
    """
    mine = [each.time_us for each in trials if each.origin.split("/")[0] in ("default", arm)]
    times = [math.inf if time is None else time for time in mine]
    last = min(contest["default"], contest.get(arm, math.inf))
    scaled = {count: last * min(times[:count]) / min(times[: CHECKPOINTS[-1]]) for count in CHECKPOINTS}
    return {count: min(contest["default"], time) for count, time in scaled.items()}
