"""How often a belief's 80 % intervals contain the best latency that the next round found.

python -m benchmarks.calibration [--curves benchmarks/data/curves.parquet] [--json FILE]

Every recording is replayed in round-robin order: before each round the belief gets all tasks of the model
with their rounds so far, related tasks included, and forecasts the round's best. Rounds without a valid
result are skipped. The headline is the share of rounds whose best lay in its interval; 0.70 to 0.90
counts as calibrated.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from math import log
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.hosts import describe_host
from benchmarks.sim.curve_file import CurveFile, RecordedRound
from mallorn.services.planner.planner_values import Forecast, Point, TaskView
from mallorn.services.planner.power_law_belief import PowerLaw

CURVES: Final = Path("benchmarks/data/curves.parquet")
KNOWN: Final = ((0, 0), (1, 1), (2, 2), (3, 5), (6, None))  # groups by known points


@dataclass(frozen=True, slots=True)
class Judged:
    """One forecast with the result of the round."""

    model: str
    seed: int
    task: str
    known: int  # valid earlier points of this task
    low_us: float
    expected_us: float
    high_us: float
    found_us: float

    @property
    def held(self) -> bool:
        return self.low_us <= self.found_us <= self.high_us


def main() -> None:
    args = _arguments()
    file = CurveFile(args.curves)
    belief = PowerLaw()
    judged = [one for cell in _cells(file.rounds()) for one in replay(cell, belief)]
    if not judged:
        raise SystemExit(f"{args.curves} holds no curves: python -m benchmarks.record_curves MODEL.onnx")
    figures = {
        "model": _grouped(judged, lambda one: one.model),
        "known": _grouped(judged, lambda one: _known_group(one.known)),
        "overall": figures_of(judged),
    }
    if args.json:
        raw = {"benchmark": "calibration", "belief": "power-law", "seed": None, **describe_host()}
        raw |= {"recorded_on": file.facts(), "figures": figures, "raw": [asdict(one) for one in judged]}
        raw |= {"headline": figures["overall"]["held"]}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    _print(figures)


def replay(rounds: Sequence[RecordedRound], belief: PowerLaw) -> Iterator[Judged]:
    """Forecast every round of one recording from the earlier rounds."""
    tasks = _by_task(rounds)
    for index in range(max(len(curve) for curve in tasks)):
        for next_round, view, forecast in _forecasts(tasks, index, belief):
            if (found_us := next_round.best_us) is not None:
                count = sum(point.best_us is not None for point in view.points)
                interval = forecast.low_us, forecast.expected_us, forecast.high_us
                cell = next_round.model, next_round.seed, next_round.name
                yield Judged(*cell, count, *interval, found_us)


def figures_of(judged: Sequence[Judged]) -> dict[str, Any]:
    """Return coverage, misses below and above, and median log width and bias of forecasts."""
    count = len(judged)
    return {
        "forecasts": count,
        "held": sum(one.held for one in judged) / count,
        "below": sum(one.found_us < one.low_us for one in judged) / count,
        "above": sum(one.found_us > one.high_us for one in judged) / count,
        "log_width": median(log(one.high_us / one.low_us) for one in judged),
        "log_bias": median(log(one.found_us / one.expected_us) for one in judged),
    }


def _cells(rounds: Iterable[RecordedRound]) -> Iterator[list[RecordedRound]]:
    """Group rounds by model and seed; the file stores these cells one after the other."""
    for _, cell in groupby(rounds, key=lambda row: (row.model, row.seed)):
        yield list(cell)


def _by_task(rounds: Iterable[RecordedRound]) -> list[list[RecordedRound]]:
    tasks = defaultdict[int, list[RecordedRound]](list)
    for row in sorted(rounds, key=lambda row: (row.task, row.round)):
        tasks[row.task].append(row)
    return list(tasks.values())


def _forecasts(
    tasks: Sequence[Sequence[RecordedRound]], index: int, belief: PowerLaw
) -> Iterator[tuple[RecordedRound, TaskView, Forecast]]:
    """Yield each task's round at this index, with the view and forecast of its task."""
    views = [task_view(curve[:index], curve[0]) for curve in tasks]
    sizes = sorted({curve[index].size for curve in tasks if index < len(curve)})
    forecasts = {size: belief.forecast(views, size) for size in sizes}
    for number, (curve, view) in enumerate(zip(tasks, views, strict=True)):
        if index < len(curve):
            yield curve[index], view, forecasts[curve[index].size][number]


def task_view(done: Sequence[RecordedRound], task: RecordedRound) -> TaskView:
    """Return the planner's view of a recorded task after these rounds; operator families."""
    valid = [row.best_us is not None for row in done]
    trials = sum(len(row.candidates_us) for row in done)
    return TaskView(
        id=task.task,
        index=task.task,
        name=task.name,
        weight=task.weight,
        flops=task.flops,
        family=f"operator:{task.op}",
        trials=trials,
        in_flight=0,
        blocked=False,
        rounds=len(done),
        points=tuple(Point(row.trials, row.best_us) for row in done),
        seconds_per_trial=sum(row.seconds for row in done) / trials if trials else None,
        failed_rounds=next((index for index, is_valid in enumerate(reversed(valid)) if is_valid), len(valid)),
    )


def _known_group(count: int) -> str:
    low, high = next((low, high) for low, high in KNOWN if high is None or count <= high)
    return f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"


def _grouped(judged: Iterable[Judged], key: Callable[[Judged], str]) -> dict[str, dict[str, Any]]:
    groups = defaultdict[str, list[Judged]](list)
    for one in judged:
        groups[key(one)].append(one)
    return {name: figures_of(group) for name, group in sorted(groups.items())}


def _print(figures: dict[str, Any]) -> None:
    print(f"{'':16} forecasts  held  below  above  log width  log bias")
    for group in ("model", "known"):
        for name, row in figures[group].items():
            print(_line(f"{name} known" if group == "known" else name, row))
    print(_line("all", figures["overall"]))
    print(f"80 % intervals that held the next round's best: {figures['overall']['held']:.3f}")


def _line(name: str, row: dict[str, Any]) -> str:
    shares = f"{row['held']:6.0%} {row['below']:6.0%} {row['above']:6.0%}"
    return f"{name:16} {row['forecasts']:9} {shares} {row['log_width']:10.3f} {row['log_bias']:9.3f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--curves", type=Path, default=CURVES)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
