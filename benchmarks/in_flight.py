"""Measures what a search loses when several rounds of one workload are in flight at once.

python -m benchmarks.in_flight [--seeds 10] [--tasks NAME ...] [--cells FILE] [--json FILE]

With k rounds of 16 in flight, a round is proposed when the results of the round k before it
are there, so results of k - 1 rounds are missing. The searcher, sampler and cost model are a
job's defaults. The ways differ in what they know of the rounds in flight:

known       the searcher gets them as pending trials, and proposes no candidate twice
unknown     it does not; a candidate that is in flight already is dropped, and its slot is wasted
predicted   as known, and the cost model is fitted again with its own predictions as labels
            of the pending candidates
ahead       as known, but the pending trials stand before the measured ones, as if they were older
later       as known, but further rounds wait for the results of the first one

`random` is chance. Ways other than `known` get half of the seeds; `worth` and `speed` compare
equal seeds. Nothing is timed.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from benchmarks.hosts import describe_host
from benchmarks.lab.cell_file import CellFile
from benchmarks.lab.cells import BATCH
from benchmarks.lab.grid import STANDARD
from benchmarks.lab.replay_search import Arena, RecordedArena, ShownSpace
from benchmarks.lab.rounds_in_flight import (
    AHEAD,
    KNOWN,
    LATER,
    PREDICTED,
    UNKNOWN,
    Cell,
    Finished,
    parse,
    play,
)
from benchmarks.lab.summary import FACTOR, RESAMPLES
from benchmarks.lab.synthetic_arena import SyntheticArena
from benchmarks.search_replay import SPACES
from mallorn.costmodels.base import Column
from mallorn.searchers.base import RANDOM
from mallorn_research.replay.recording_file import read_facts, read_tasks

#: Recorded tasks (the beginning of their workload's key) and made-up products (their shape).
#: No default schedule of these is within FACTOR of the best known; of the nine such recorded
#: tasks, the six with the fewest good candidates. What the ways do was decided by the former.
LOOKED_AT: Final = ("406be197", "60a4cdbe", "3e7ad085", "256x512x64", "512x512x512")
HELD_OUT: Final = ("4154946d", "d555b135", "9f706108", "64x1000x100")
WAYS: Final = {KNOWN: (1, 2, 4, 8), UNKNOWN: (2, 4, 8), PREDICTED: (4,), AHEAD: (8,), LATER: (4, 8)}
#: Trials of a made-up space and of a recorded task, which has 416 candidates.
LONG: Final = 512
SHORT: Final = 256
CHECKPOINTS: Final = (64, 128, 256, 512)
HEADLINE: Final = ("held out", STANDARD.search, KNOWN)  # group, searcher and way


def arenas(names: Sequence[str]) -> Iterator[tuple[str, Arena]]:
    """Yield the tasks of these names: recorded ones, then made-up spaces."""
    for task in read_tasks(SPACES):
        if task.workload[:8] in names:
            yield task.workload[:8], RecordedArena(task, ShownSpace.RECORDED)
    for name in names:
        if "x" in name:
            yield name, SyntheticArena(*map(int, name.split("x")))


def cells(seeds: int, names: Sequence[str]) -> Iterator[Cell]:
    """Yield the searches by seed; ways other than `known` get half of the seeds."""
    for seed in range(seeds):
        for name in names:
            trials = LONG if "x" in name else SHORT
            yield Cell(name, RANDOM, KNOWN, 1, seed, trials)
            for way, numbers in WAYS.items():
                for number in numbers if way == KNOWN or seed < seeds // 2 else ():
                    yield Cell(name, STANDARD.search, way, number, seed, trials)


@dataclass(frozen=True)
class Figure:
    """A geometric mean over tasks, and where 95 % of the means of other draws of as many lie."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, logs: Column) -> Self:
        draws = np.random.default_rng(0).integers(len(logs), size=(RESAMPLES, len(logs)))
        bounds = np.percentile(logs[draws].mean(axis=1), (2.5, 97.5))
        return cls(*(round(float(each), 4) for each in np.exp([logs.mean(), *bounds])))


@dataclass(frozen=True)
class Row:
    """All searches of one searcher, way and number of rounds in flight on a group of tasks.

    `worth` is how many trials the default searcher needs with one round in flight for each
    trial of these, and `speed` how many round times it needs for each of theirs.
    """

    group: str
    search: str
    way: str
    in_flight: int
    searches: int
    reached: float
    trials: Figure
    worth: Figure
    round_times: Figure
    speed: Figure
    best: dict[int, float]  # over the best known, by trials, where all tasks have that many
    duplicates: float  # share of the slots


def summarise(finished: Sequence[Finished]) -> list[Row]:
    """Return the rows of each group of tasks; chance is the same for any number in flight."""
    runs = defaultdict[tuple[str, str, int], list[Finished]](list)
    for run in finished:
        cell = run.cell
        for number in WAYS[KNOWN] if cell.search == RANDOM else (cell.in_flight,):
            as_if = replace(run, cell=replace(cell, in_flight=number))
            runs[cell.search, cell.way, number].append(as_if)
    shared_seeds = {run.cell.seed for run in finished if run.cell.way != KNOWN}
    groups: dict[str, Callable[[Cell], bool]] = {
        "all": lambda _: True,
        "equal seeds": lambda cell: cell.seed in shared_seeds,
        "looked at": lambda cell: cell.arena in LOOKED_AT,
        "held out": lambda cell: cell.arena in HELD_OUT,
        "recorded": lambda cell: "x" not in cell.arena,
        "made-up": lambda cell: "x" in cell.arena,
    }
    alone = runs[STANDARD.search, KNOWN, 1]
    return [
        _row(group, members, [run for run in alone if has(run.cell)])
        for group, has in groups.items()
        for chosen in runs.values()
        if (members := [run for run in chosen if has(run.cell)])
    ]


def _row(group: str, runs: Sequence[Finished], alone: Sequence[Finished]) -> Row:
    cell, tasks = runs[0].cell, list(dict.fromkeys(run.cell.arena for run in runs))

    def mean_logs(of: Sequence[Finished], value: Callable[[Finished], float]) -> Column:
        return np.array([np.mean([np.log(value(r)) for r in of if r.cell.arena == task]) for task in tasks])

    seeds = {run.cell.seed for run in runs}
    alone = [run for run in alone if run.cell.seed in seeds]
    trials, times = mean_logs(runs, lambda r: r.trials), mean_logs(runs, lambda r: r.round_times)
    least = min(run.cell.trials for run in runs)

    def best_after(slot: int) -> float:
        return round(float(np.exp(mean_logs(runs, lambda run: run.after(slot)).mean())), 4)

    return Row(
        group,
        cell.search,
        cell.way,
        cell.in_flight,
        len(runs),
        float(np.mean([run.after(run.cell.trials) <= FACTOR for run in runs])),
        Figure.of(trials),
        Figure.of(mean_logs(alone, lambda r: r.trials) - trials),
        Figure.of(times),
        Figure.of(mean_logs(alone, lambda r: r.round_times) - times),
        {slot: best_after(slot) for slot in CHECKPOINTS if slot <= least},
        sum(run.duplicates for run in runs) / sum(run.slots for run in runs),
    )


def _print(rows: Sequence[Row]) -> None:
    for group in dict.fromkeys(row.group for row in rows):
        checkpoints = "".join(f"{f'at {n}':>8}" for n in CHECKPOINTS)
        print(f"\n{group:25}{'reached':>8}{'trials to 1.05':>20}{'worth':>18}", end="")
        print(f"{'round times':>20}{'speed':>18}{checkpoints}{'twice':>7}")
        for row in (each for each in rows if each.group == group):
            name = f"{row.search} {row.way} {row.in_flight}"
            best = "".join(f"{row.best.get(n, np.nan):8.3f}" for n in CHECKPOINTS)
            print(
                f"{name:25}{row.reached:8.0%}{_text(row.trials, 1):>20}{_text(row.worth, 2):>18}"
                f"{_text(row.round_times, 1):>20}{_text(row.speed, 2):>18}{best}{row.duplicates:7.0%}"
            )


def _text(figure: Figure, digits: int) -> str:
    return f"{figure.mean:.{digits}f} ({figure.low:.{digits}f}..{figure.high:.{digits}f})"


def main() -> None:
    """Run missing searches, then print what they came to."""
    options = _arguments()
    # Use one thread per process: boosters' threads waste most time waiting on small data.
    os.environ["OMP_NUM_THREADS"] = "1"
    by_name = dict(arenas(options.tasks))
    chosen = list(cells(options.seeds, list(by_name)))
    stored = CellFile(options.cells, parse)
    for count, cell in enumerate(chosen, 1):
        if cell not in stored:
            stored.add(play(by_name[cell.arena], cell))
            print(f"\r{count} of {len(chosen)} searches", end="", file=sys.stderr, flush=True)
    finished = stored.of(chosen)
    rows = summarise(finished)
    _print(rows)
    worth = {row.in_flight: row.worth for row in rows if (row.group, row.search, row.way) == HEADLINE}
    headline = "worth of a trial by rounds in flight, held-out tasks: " + ", ".join(
        f"{number}: {_text(figure, 2)}" for number, figure in worth.items()
    )
    if options.json:
        raw = {
            "headline": headline,
            "round": BATCH,
            "factor": FACTOR,
            "seeds": options.seeds,
            "looked_at": LOOKED_AT,
            "held_out": HELD_OUT,
            "recorded_on": read_facts(SPACES),
            "rows": [asdict(row) for row in rows],
            "columns": [*(field.name for field in fields(Cell)), "slots", "duplicates", "steps"],
            "searches": [[*astuple(run.cell), run.slots, run.duplicates, run.steps] for run in finished],
        }
        options.json.write_text(json.dumps(raw | describe_host()) + "\n")
    print(headline)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tasks", nargs="+", default=[*LOOKED_AT, *HELD_OUT], metavar="NAME")
    parser.add_argument("--cells", type=Path, help="where finished searches are stored, as JSON lines")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
