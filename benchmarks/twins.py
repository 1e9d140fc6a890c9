"""Effect of learning: each learner compared with its twins, in runs that search_replay stored.

python -m benchmarks.twins CELLS.jsonl ... [--json FILE]

A pair is a learner and a twin without its learning (lab.unlearned), on one space with one seed, cost
model and sampler. Figures are the twin's over the learner's: trials to 1.05 of the optimum, and best
found at the end. Above 1, learning helps; brackets are 95 % bootstrap intervals over the pairs.
Samplers are compared likewise.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.lab.cell_file import CellFile
from benchmarks.lab.cells import Cell, Finished, parse
from benchmarks.lab.summary import FACTOR, RESAMPLES, WORST
from benchmarks.lab.unlearned import SAMPLER_TWINS, TWINS

AXES: Final[Mapping[str, Mapping[str, str]]] = {"search": TWINS, "sampler": SAMPLER_TWINS}


@dataclass(frozen=True)
class Gain:
    """Gain of learning on one kind of space, from pairs of runs with and without it."""

    kind: str
    twin: str
    pairs: int
    trials: tuple[float, float, float]  # ratio of geometric means, and its 95 % interval
    best: tuple[float, float, float]


def main() -> None:
    """Read the runs, pair them, and print the gains."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs="+", type=Path, help="what search_replay --cells wrote")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    gains = compare(done for path in options.cells for done in CellFile(path, parse).all())
    if options.json:
        options.json.write_text(json.dumps([vars(gain) for gain in gains], indent=1) + "\n")
    for gain in gains:
        print(f"{gain.kind:10} {gain.twin:22} {gain.pairs:4}  {_format(gain.trials)}  {_format(gain.best)}")


def compare(finished: Iterable[Finished]) -> list[Gain]:
    """Return gains by kind of space and twin, for runs stored of both."""
    runs = {run.cell: run for run in finished}
    pairs = defaultdict[tuple[str, str], list[tuple[float, float]]](list)
    for cell, run in runs.items():
        for twin, learner in _learner_cells(cell):
            if learner in runs:
                pairs[cell.kind, twin].append(_logs(run, runs[learner]))
    return [
        Gain(kind, twin, len(logs), *(_interval(column) for column in zip(*logs, strict=True)))
        for (kind, twin), logs in sorted(pairs.items())
    ]


def _learner_cells(cell: Cell) -> Iterator[tuple[str, Cell]]:
    """Yield a twin's name with the learner's cell to compare this cell with."""
    for axis, twins in AXES.items():
        for twin in twins:
            if getattr(cell.combination, axis) == twin:
                changed: dict[str, Any] = {axis: twin.rsplit("-", 1)[0]}
                yield twin, replace(cell, combination=replace(cell.combination, **changed))


def _logs(twin: Finished, learner: Finished) -> tuple[float, float]:
    needed, best = (
        [done.trials_to(FACTOR) or done.cell.trials for done in (twin, learner)],
        [min(WORST, done.after(done.cell.trials)) for done in (twin, learner)],
    )
    return float(np.log(needed[0] / needed[1])), float(np.log(best[0] / best[1]))


def _interval(logs: Sequence[float]) -> tuple[float, float, float]:
    draws = np.random.default_rng(0).integers(len(logs), size=(RESAMPLES, len(logs)))
    low, high = np.percentile(np.array(logs)[draws].mean(axis=1), (2.5, 97.5))
    mean, least, most = np.exp([np.mean(logs), low, high]).tolist()
    return mean, least, most


def _format(figures: tuple[float, float, float]) -> str:
    mean, low, high = figures
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
