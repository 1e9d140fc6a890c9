"""Accuracy of the gain that jobs without trials predict, on networks that were also tuned.

python -m benchmarks.tuning_gain [--json FILE] [--svg FILE]

Times come from docs/results: whole networks (known, latency_held_out_*) and tasks (oracle).
Each network is predicted from all others and, if its tasks' operators are known, again with
the other networks' tasks on the same machine, as a job uses earlier jobs of its context. A
gain is a share of the latency; an interval holds if it contains the gain, up to the noise of
two timings. The headline is the share of whole networks whose interval held.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, groupby
from pathlib import Path
from statistics import fmean, median
from typing import Final

from benchmarks.checkpoints import Raw, latency_us
from benchmarks.hosts import describe_host
from benchmarks.lab.calibration_chart import Point, calibration_chart
from mallorn.core.targets import Target
from mallorn.core.values.expected_gain import TaskGap
from mallorn.workers.finish.predict_tuning_gain import GuessedTask, gap_closed, predict_tuning_gain

RESULTS: Final = Path(__file__).parents[1] / "docs" / "results"
#: Peak of one Zen 4 core in oracle.json: operations of its products over their roofline.
ZEN4_GFLOPS: Final = 118.0
SEARCHED: Final = "256"  # trials per task, as a key in oracle.json
DIGITS: Final = 3
NOISE: Final = 1.01
Group = tuple[str, str]  # name of a group, and whether earlier jobs were used


@dataclass(frozen=True)
class Part:
    """A task, or a whole network without figures per operator, whose `op` is empty."""

    op: str
    guess_us: float
    best_us: float
    limit_us: float

    @property
    def gap(self) -> TaskGap:
        return gap_closed(self.op, self.guess_us, self.best_us, self.limit_us)


@dataclass(frozen=True)
class Network:
    """The timed parts of a network on a machine."""

    model: str
    machine: str
    parts: tuple[Part, ...]

    @property
    def gap(self) -> TaskGap:
        guess_us, best_us = (sum(getattr(part, of) for part in self.parts) for of in ("guess_us", "best_us"))
        return gap_closed(
            "", guess_us, best_us, sum(min(part.guess_us, part.limit_us) for part in self.parts)
        )

    @property
    def found(self) -> float:
        return 1 - sum(part.best_us for part in self.parts) / sum(part.guess_us for part in self.parts)


@dataclass(frozen=True)
class Foretold:
    """A predicted gain, its interval, and the gain found."""

    model: str
    machine: str
    whole: bool  # False if only some of its tasks are known
    earlier_jobs: bool
    open: float
    gain: float
    low: float
    high: float
    found: float

    @property
    def held(self) -> bool:
        return self.low - (NOISE - 1) <= self.found <= self.high + (NOISE - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path, help="whole networks: foretold and found")
    args = parser.parse_args()
    target = args.json
    networks = read_networks()
    told = [each for network in networks for each in foretell(network, networks)]
    figures = {
        f"{group}, {'with' if seen else 'without'} earlier jobs": figures_of(rows)
        for group, seen, rows in _grouped(told)
    }
    earlier = [network.gap for network in networks]
    if target:
        raw = {"benchmark": "tuning_gain", "seed": None, **describe_host(), "figures": figures}
        raw |= {"earlier": rounded(earlier), "trial_sec": trial_sec(), "raw": [asdict(one) for one in told]}
        raw |= {"headline": headline(told)}
        target.write_text(json.dumps(raw, indent=1) + "\n")
    if args.svg:
        args.svg.write_text(drawn([one for one in told if one.whole]))
    print(*_lines(told, figures), sep="\n")


def drawn(told: Sequence[Foretold]) -> str:
    """Return an SVG chart with a point per network and machine."""
    points = [
        Point(f"{one.model}, {one.machine}", one.gain, one.low, one.high, one.found, one.held) for one in told
    ]
    return calibration_chart(points, "What trials win of whole networks, each foretold from the others")


def read_networks(results: Path = RESULTS) -> list[Network]:
    """Read the networks in docs/results timed with first guesses and after trials."""
    return [*_known(results), *_held_out(results), *_oracle(results)]


def _cells(results: Path) -> list[Raw]:
    return [json.loads(path.read_text()) for path in sorted((results / "known").glob("*.json"))]


def _known(results: Path) -> Iterator[Network]:
    for cell in _cells(results):
        limit_us = cell["arms"]["own"]["details"]["report"]["outlook"]["limit_us"]
        part = Part("", latency_us(cell, "zero"), latency_us(cell, "own"), limit_us)
        yield Network(cell["model"], cell["target"]["mcpu"], (part,))


def _held_out(results: Path) -> Iterator[Network]:
    """Yield held-out networks; their operation counts come from the `known` cells."""
    for known in _cells(results):
        path = results / f"latency_held_out_{known['model']}.json"
        cell = json.loads(path.read_text())["cells"][0] if path.exists() else {"latency_us": {}}
        if "ours" in cell["latency_us"]:
            flop = known["arms"]["zero"]["details"]["report"]["limits"]["flop"]
            limit_us = flop / (ZEN4_GFLOPS * cell["threads"]) / 1e3
            part = Part("", latency_us(cell, "zero"), latency_us(cell, "ours"), limit_us)
            yield Network(known["model"], "znver4", (part,))


def _oracle(results: Path) -> Iterator[Network]:
    """Yield the networks of oracle.json; all their tasks have weight 1."""
    tasks = json.loads((results / "oracle.json").read_text())["tasks"]
    ordered = sorted(tasks, key=lambda task: (task["target"], task["model"]))
    for (target, model), rows in groupby(ordered, key=lambda task: (task["target"], task["model"])):
        parts = [
            Part(row["op"], row["defaults_us"], row["ours_us"][SEARCHED], row["roofline_us"]) for row in rows
        ]
        yield Network(model, f"{Target(target).attrs['mcpu']}, one core", tuple(parts))


def foretell(network: Network, networks: Sequence[Network]) -> Iterator[Foretold]:
    """Yield predictions from other networks, without and with their tasks on this machine."""
    others = [each for each in networks if each.model != network.model]
    yield _predict(network, others, [])
    local = [each for each in others if each.machine == network.machine]
    seen = [part.gap for each in local for part in each.parts if part.op]
    if seen and all(part.op for part in network.parts):
        yield _predict(network, [each for each in others if each not in local], seen)


def _predict(network: Network, others: Sequence[Network], seen: Sequence[TaskGap]) -> Foretold:
    tasks = [GuessedTask(str(number), part.guess_us, part.gap) for number, part in enumerate(network.parts)]
    prediction = predict_tuning_gain(tasks, seen, 0.0, earlier=[each.gap for each in others])
    whole = not all(part.op for part in network.parts)
    facts = network.model, network.machine, whole, bool(seen), network.gap.initial_gap
    return Foretold(*facts, prediction.gain, prediction.low, prediction.high, network.found)


def headline(told: Sequence[Foretold]) -> float:
    """Return the share held of whole networks; single tasks mostly are near the limit."""
    return figures_of([one for one in told if one.whole])["held"]


def figures_of(told: Sequence[Foretold]) -> dict[str, float]:
    """Return the share of intervals that held, and errors of the gains as shares of latency.

    `in order` is the share of pairs in which the higher prediction had the higher gain.
    """
    pairs = [(one.gain - two.gain) * (one.found - two.found) > 0 for one, two in combinations(told, 2)]
    return {
        "networks": len(told),
        "held": fmean(one.held for one in told),
        "width": median(one.high - one.low for one in told),
        "error": fmean(abs(one.gain - one.found) for one in told),
        "bias": fmean(one.gain - one.found for one in told),
        "error of no gain": fmean(abs(one.found) for one in told),
        "in order": fmean(pairs),
    }


def _grouped(told: Sequence[Foretold]) -> Iterator[tuple[str, bool, list[Foretold]]]:
    groups = {
        "whole networks": [one for one in told if one.whole],
        "a few of their tasks": [one for one in told if not one.whole],
        "all": told,
    }
    for name, rows in groups.items():
        for seen in (False, True):
            if chosen := [one for one in rows if one.earlier_jobs == seen]:
                yield name, seen, chosen


def rounded(gaps: Sequence[TaskGap]) -> list[tuple[float, float]]:
    """Round gaps as stored in mallorn.workers.finish.predict_tuning_gain."""
    return [(round(gap.initial_gap, DIGITS), round(gap.closed_gap, DIGITS)) for gap in gaps]


def trial_sec(results: Path = RESULTS) -> float:
    """Return the seconds of a whole job per trial, median over networks."""
    return median(cell["arms"]["own"]["total_sec_per_trial"] for cell in _cells(results))


def _lines(predictions: Sequence[Foretold], figures: dict[str, dict[str, float]]) -> Iterator[str]:
    yield f"{'network':12} {'machine':18} earlier jobs  open   foretold   interval       found"
    for one in predictions:
        interval = f"{one.low:6.1%} to {one.high:6.1%}"
        row = f"{'yes' if one.earlier_jobs else 'no':12} {one.open:5.2f} {one.gain:10.1%}   {interval}"
        yield f"{one.model:12} {one.machine:18} {row} {one.found:7.1%}{'' if one.held else '  missed'}"
    for name, row in figures.items():
        yield f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in row.items())
    yield f"80 % intervals that held the gain of a whole network: {headline(predictions):.2f}"


if __name__ == "__main__":
    main()
