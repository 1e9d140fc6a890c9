"""Three gaps of every task: defaults to oracle, oracle to roofline, ours to oracle."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.hosts import describe_host
from benchmarks.oracle.stream import read_trials
from mallorn.core.limits import element_bytes
from mallorn.core.values.trial import Trial

CHECKPOINTS = (64, 256)
COLUMNS = (
    *("model", "operator", "target", "candidates", "defaults/oracle", "oracle/roofline"),
    *(f"{arm} {count}" for arm in ("ours", "chance") for count in CHECKPOINTS),
)


@dataclass(frozen=True, slots=True)
class Gaps:
    """One task on a target, in microseconds; `found_us` by trials, defaults included."""

    model: str
    op: str
    target: str
    candidates: int
    first_us: float
    defaults_us: float
    oracle_us: float
    roofline_us: float
    ours_us: dict[int, float]
    chance_us: dict[int, float]

    @property
    def search_could_win(self) -> float:
        return self.defaults_us / self.oracle_us

    @property
    def space_must_grow(self) -> float:
        return self.oracle_us / self.roofline_us


def report(data: Path, out: Path | None) -> None:
    """Print the table and the headline; keep both with the raw figures."""
    found = [gaps_of(path) for path in sorted(data.glob("*.json"))]
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|")
    for each in found:
        print(_line(each))
    headline = geometric(each.ours_us[256] / each.oracle_us for each in found)
    print(f"ours after 256 trials over the oracle, geometric mean: {headline:.3f}")
    if out is not None:
        rows = [asdict(each) for each in found]
        out.write_text(json.dumps({"headline": headline, "tasks": rows} | describe_host()) + "\n")


def gaps_of(path: Path) -> Gaps:
    """A finished cell's gaps; arms at checkpoints are on the scale of the contest, where all met again."""
    cell = json.loads(path.read_text())
    trials = list(read_trials(path.with_suffix(".jsonl")))
    best = {arm: time for arm, time in cell["best_us"].items() if time is not None}
    ours, chance = (_found(trials, arm, best) for arm in ("ours", "chance"))
    return Gaps(
        model=cell["model"],
        op=cell["task"]["op"],
        target=cell["target"],
        candidates=cell["candidates"],
        first_us=cell["first_us"],
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
    """The best after so many trials, defaults first, scaled by what the arm's best took in the contest."""
    mine = [each.time_us for each in trials if each.origin.split("/")[0] in ("default", arm)]
    times = [math.inf if time is None else time for time in mine]
    last = min(contest["default"], contest.get(arm, math.inf))
    return {count: last * min(times[:count]) / min(times[: CHECKPOINTS[-1]]) for count in CHECKPOINTS}


def _line(each: Gaps) -> str:
    ours, chance = (
        [times[n] / each.oracle_us for n in CHECKPOINTS] for times in (each.ours_us, each.chance_us)
    )
    figures = [each.search_could_win, each.space_must_grow, *ours, *chance]
    kind = json.loads(each.target).get("mcpu", each.target)
    shown = " | ".join(f"{figure:.2f}" for figure in figures)
    return f"| {each.model} | {each.op} | {kind} | {each.candidates} | {shown} |"
