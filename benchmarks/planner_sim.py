"""Simulate the planner's policies on recorded and synthetic tuning curves and devices.

python -m benchmarks.planner_sim [--policies NAME ...] [--devices 1 8 64] [--seeds 20] [--json FILE]
python -m benchmarks.planner_sim --scale [--decisions 100000] [--json FILE]

The real planner decides (mallorn.services.planner.plan_rounds); curves give the results. A round takes
the next part of the task's recorded trials, and their recorded seconds. The final latency is the weighted
total at the end of all curves; a run that ends before it is within 1.05x is charged with all its remaining
trials. Recorded curves come from `python -m benchmarks.record_curves`; synthetic ones are new for every
seed and only show weaknesses: thresholds are chosen on recorded curves.

The headline is the geometric mean over the recorded models of the trials that `dynatune` needs to come within
1.05x of the final latency on one device, over those of `round-robin`. With --scale it is the median
milliseconds of a decision among 10,000 tasks of 200 jobs on 500 devices.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from statistics import median as median_of
from typing import Any, Final

from benchmarks.hosts import describe_host
from benchmarks.sim.crowd import Load
from benchmarks.sim.curve_file import CurveFile
from benchmarks.sim.curves import recordings
from benchmarks.sim.fitted import constants
from benchmarks.sim.ratios import WHATS, Ratio, foresight, ratio
from benchmarks.sim.report import HEAD, figures, line, oracle_line, ratio_figures, ratio_lines
from benchmarks.sim.scale import measure
from benchmarks.sim.tournament import FACTORS, RECORDED, SYNTHETIC, Arena, Cell, arenas, oracle, tournament
from mallorn.core.registry import REGISTRY, resolve

CURVES: Final = Path(__file__).parent / "data" / "curves.parquet"
BASELINES: Final = ("round-robin", "gradient")
JUDGED: Final = "dynatune"


def main() -> None:
    args = _arguments()
    raw = _scale(args) if args.scale else _policies(args)
    if args.json:
        facts = {"benchmark": "planner_sim", "seed": list(range(args.seeds)), **describe_host()}
        args.json.write_text(json.dumps(facts | raw, indent=1) + "\n")


def _policies(args: argparse.Namespace) -> dict[str, Any]:
    file = CurveFile(args.curves)
    selected = _select(arenas(recordings(file.rounds()), synthetic=not args.recorded_only), args.models)
    fewest = {arena: oracle(arena, _seeds(arena, args)) for arena in selected}
    print(HEAD, flush=True)
    for arena, trials in fewest.items():
        print(oracle_line(arena.kind, arena.name, trials), flush=True)
    cells: list[Cell] = []
    for arena in selected:
        for cell in tournament([arena], args.policies, args.devices, _seeds(arena, args), args.round_size):
            cells.append(cell)
            print(line(cell), flush=True)
    ratios = list(_ratios(cells))
    print("\n".join(ratio_lines(ratios)))
    equal = list(_ratios(_alike(cells, selected, args)))
    if equal:
        print("the same with first visits as small for the baselines:", *ratio_lines(equal), sep="\n")
    headline = _headline(ratios)
    bound = None
    if headline is not None:
        best = {arena.name: trials[FACTORS[0]] for arena, trials in fewest.items()}
        bound = foresight(cells, "round-robin", best, FACTORS[0])
        print(f"with foresight it would be {bound:.3f}")
    print(f"trials of {JUDGED} over those of round-robin to 1.05x, geometric mean: {headline}")
    raw: dict[str, Any] = {"recorded_on": file.facts(), "cells": [figures(cell) for cell in cells]}
    raw["fewest_trials"] = [
        {"curves": arena.kind, "model": arena.name, "to": {str(at): count for at, count in trials.items()}}
        for arena, trials in fewest.items()
    ]
    return raw | {
        "ratios": [ratio_figures(found) for found in ratios],
        "ratios_with_equal_first_visits": [ratio_figures(found) for found in equal],
        "foresight": bound,
        "headline": headline,
    }


def _seeds(arena: Arena, args: argparse.Namespace) -> int:
    """Return the number of seeds to run on these curves."""
    synthetic: int | None = args.drawn_seeds
    return synthetic if synthetic is not None and arena.kind == SYNTHETIC else int(args.seeds)


def _alike(cells: list[Cell], over: list[Arena], args: argparse.Namespace) -> list[Cell]:
    """Return cells of dynatune and of baselines with its first visit (recorded, 1 device)."""
    judged = [cell for cell in cells if (cell.kind, cell.devices, cell.policy) == (RECORDED, 1, JUDGED)]
    recorded = [arena for arena in over if arena.kind == RECORDED]
    policies = [name for name in args.policies if name in BASELINES] if judged else []
    part = resolve("policy", JUDGED).first_visit
    with constants({f"{REGISTRY['policy'][name]}.first_visit": part for name in policies}):
        return judged + list(tournament(recorded, policies, [1], args.seeds, args.round_size))


def _ratios(cells: list[Cell]) -> Iterator[Ratio]:
    places = sorted({(cell.kind, cell.devices) for cell in cells})
    policies = sorted({cell.policy for cell in cells})
    for (kind, devices), factor, what in product(places, FACTORS, WHATS):
        for policy, against in product(policies, BASELINES):
            if policy != against and against in policies:
                yield ratio(cells, policy, against, (kind, devices), what, factor)


def _headline(ratios: list[Ratio]) -> float | None:
    """Return the headline; None if a needed policy, models or one device were not run."""
    key = (JUDGED, "round-robin", RECORDED, 1, FACTORS[0], "trials")
    matches = (r for r in ratios if (r.policy, r.against, r.kind, r.devices, r.factor, r.what) == key)
    return next((round(r.mean, 3) for r in matches), None)


def _scale(args: argparse.Namespace) -> dict[str, Any]:
    load, results = Load(decisions=args.decisions), {}
    for policy in args.policies:
        strain = measure(load, policy)
        turn = median_of(strain.turn_ms)
        median, p99 = strain.percentile_ms(50), strain.percentile_ms(99)
        results[policy] = {
            "median_ms": median,
            "p99_ms": p99,
            "median_turn_ms": turn,
            "max_ms": max(strain.decision_ms),
            "rss_mib": strain.rss_mib,
            "rss_growth": strain.growth,
            "jobs_finished": strain.jobs_finished,
        }
        print(
            f"{policy:12} {median:.2f} ms a decision ({turn:.2f} of it whose turn it is), p99 {p99:.2f} ms; "
            f"memory {strain.rss_mib[-1]:.0f} MiB, {strain.growth:.3f} of what it was after a fifth",
            flush=True,
        )
    headline = results[JUDGED]["median_ms"] if JUDGED in results else None
    print(f"median of a decision of {JUDGED}, ms: {headline}")
    return {"load": asdict(load), "policies": results, "headline": headline}


def _select(over: list[Arena], names: list[str] | None) -> list[Arena]:
    return [arena for arena in over if names is None or arena.name in names]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--curves", type=Path, default=CURVES)
    parser.add_argument("--models", nargs="+", help="recorded or drawn; default: all")
    parser.add_argument("--policies", nargs="+", default=sorted(REGISTRY["policy"]))
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seeds", type=int, default=20, help="how many, from 0")
    parser.add_argument("--drawn-seeds", type=int, help="how many on drawn curves; default: as many")
    parser.add_argument("--round-size", type=int, help="default: as the planner likes")
    parser.add_argument("--recorded-only", action="store_true")
    parser.add_argument("--scale", action="store_true", help="10,000 tasks, 200 jobs, 500 devices")
    parser.add_argument("--decisions", type=int, default=100_000, help="with --scale")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
