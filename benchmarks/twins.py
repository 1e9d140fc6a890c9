"""What learning brings: each learner beside its twins, run by run, in what search_replay stored.

python -m benchmarks.twins CELLS.jsonl ... [--json FILE]

A pair is a learner and one of its twins (lab.unlearned) on one space with one seed, cost model and sampler.
The figures are what the twin needed over what the learner needed: trials to 1.05 of the optimum, and best
found at the end. Above one the learning earned something; brackets hold 95 % of what other draws of as many
pairs would bring. Samplers are told likewise.
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
    """What a part earns on spaces of a kind, from pairs of runs with it and without."""

    kind: str
    twin: str
    pairs: int
    trials: tuple[float, float, float]  # the ratio of geometric means, and where 95 % of draws lie
    best: tuple[float, float, float]


def main() -> None:
    """Read, pair, tell."""
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
        print(f"{gain.kind:10} {gain.twin:22} {gain.pairs:4}  {_told(gain.trials)}  {_told(gain.best)}")


def compare(finished: Iterable[Finished]) -> list[Gain]:
    """By kind of space and twin, wherever both were run."""
    runs = {done.cell: done for done in finished}
    found = defaultdict[tuple[str, str], list[tuple[float, float]]](list)
    for cell, done in runs.items():
        for twin, whole in _wholes(cell):
            if whole in runs:
                found[cell.kind, twin].append(_logs(done, runs[whole]))
    return [
        Gain(kind, twin, len(logs), *(_interval(column) for column in zip(*logs, strict=True)))
        for (kind, twin), logs in sorted(found.items())
    ]


def _wholes(cell: Cell) -> Iterator[tuple[str, Cell]]:
    """What a cell of a twin is compared with: the same cell of the whole."""
    for axis, twins in AXES.items():
        for twin in twins:
            if getattr(cell.combination, axis) == twin:
                changed: dict[str, Any] = {axis: twin.rsplit("-", 1)[0]}
                yield twin, replace(cell, combination=replace(cell.combination, **changed))


def _logs(twin: Finished, whole: Finished) -> tuple[float, float]:
    needed, best = (
        [done.trials_to(FACTOR) or done.cell.trials for done in (twin, whole)],
        [min(WORST, done.after(done.cell.trials)) for done in (twin, whole)],
    )
    return float(np.log(needed[0] / needed[1])), float(np.log(best[0] / best[1]))


def _interval(logs: Sequence[float]) -> tuple[float, float, float]:
    draws = np.random.default_rng(0).integers(len(logs), size=(RESAMPLES, len(logs)))
    low, high = np.percentile(np.array(logs)[draws].mean(axis=1), (2.5, 97.5))
    mean, least, most = np.exp([np.mean(logs), low, high]).tolist()
    return mean, least, most


def _told(figures: tuple[float, float, float]) -> str:
    mean, low, high = figures
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
