"""torch.compile with Mallorn, with inductor and without, on three torch models in one sitting.

python -m benchmarks.torch_compile [NAME ...] [--trials N] [--rounds 20] [--json FILE]

Calls are interleaved: each round times every engine once, on the same input. `first_sec` has the compilation;
`found` says how many workloads had a known schedule, or are tuned now with `--trials`. Needs torch and, for
inductor, g++. The headline is our latency over inductor's (eager's without it), geometric mean.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch

from benchmarks.hosts import describe_host
from benchmarks.torch_networks import NETWORKS, build
from mallorn.torch_backend import compile_graph, reports

DEFAULT: Final = ("residual", "transformer", "depthwise")
PIECE_SEC: Final = 0.05  # calls are repeated until a piece takes so long


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(DEFAULT), choices=[*NETWORKS])
    parser.add_argument("--trials", type=int, default=0, help="trials a network; default: known schedules")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [measure(name, args.trials, args.rounds) for name in args.names]
    for row in rows:
        print(json.dumps(row))
    ratios = [row["us"]["mallorn"] / row["us"].get("inductor", row["us"]["eager"]) for row in rows]
    headline = f"our latency over inductor's: {prod(ratios) ** (1 / len(ratios)):.2f}"
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        raw = describe_host() | {"torch": torch.__version__, "threads": torch.get_num_threads()}
        args.json.write_text(json.dumps(raw | {"networks": rows, "headline": headline}, indent=1) + "\n")
    print(headline)


def measure(name: str, trials: int, rounds: int) -> dict[str, Any]:
    """Return first calls in seconds, and the median of interleaved calls in microseconds."""
    network, inputs = build(name)
    options = {"trials": trials} if trials else {}
    engines: dict[str, Callable[..., Any]] = {
        "eager": network,
        "inductor": torch.compile(network, backend="inductor"),
        "mallorn": torch.compile(network, backend=compile_graph, options=options),
    }
    first, times = {}, {}
    with torch.inference_mode():
        for engine, call in list(engines.items()):
            began = time.perf_counter()
            try:
                call(*inputs)
            except Exception as error:  # inductor without a compiler
                print(f"{name}: {engine} is left out: {type(error).__name__}")
                del engines[engine]
                continue
            first[engine], times[engine] = time.perf_counter() - began, []
        for _ in range(rounds):
            for engine in times:
                times[engine].append(time_piece(engines[engine], inputs))
    graph = asdict(reports()[-1])
    us = {engine: median(pieces) * 1e6 for engine, pieces in times.items()}
    return {"network": name, "trials": trials, "graph": graph, "first_sec": first, "us": us}


def time_piece(call: Callable[..., Any], inputs: tuple[Any, ...]) -> float:
    """Return the seconds a call takes, of as many calls in a row as fill a piece."""
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < PIECE_SEC:
        call(*inputs)
        count += 1
    return elapsed / count


if __name__ == "__main__":
    main()
