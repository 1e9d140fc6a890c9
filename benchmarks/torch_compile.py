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
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch

from benchmarks.hosts import describe_host
from benchmarks.torch_networks import NETWORKS, build
from mallorn.client.job import Job
from mallorn.client.torch_backend import EagerFallback, compile_graph, jobs
from mallorn.core.values.finish_report import Source

DEFAULT: Final = ("residual", "transformer", "depthwise")
PIECE_SEC: Final = 0.05  # calls are repeated until a piece takes so long


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(DEFAULT), help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--trials", type=int, default=0, help="trials a network; default: known schedules")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", EagerFallback)  # a time of eager mode must not pass for ours
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
    made = len(jobs)  # none is added if an earlier run left the library
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
                if engine != "inductor":
                    raise
                print(f"{name}: {engine} is left out: {type(error).__name__}")
                del engines[engine]
                continue
            first[engine], times[engine] = time.perf_counter() - began, []
        for _ in range(rounds):
            for engine in times:
                times[engine].append(time_piece(engines[engine], inputs))
    us = {engine: median(pieces) * 1e6 for engine, pieces in times.items()}
    row = {"network": name, "trials": trials, "first_sec": first, "us": us}
    return row | (
        {"found": count_found(jobs[-1]), "of": jobs[-1].status.finish_report.workload_count}
        if jobs[made:]
        else {}
    )


def count_found(job: Job) -> int:
    """Return how many workloads have a schedule that was measured for the same workload."""
    report = job.status.finish_report
    guesses = report.unmeasured_schedules.values()
    return (report.schedule_count or 0) - sum(guess.source is not Source.SAME for guess in guesses)


def time_piece(call: Callable[..., Any], inputs: tuple[Any, ...]) -> float:
    """Return the seconds a call takes, of as many calls in a row as fill a piece."""
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < PIECE_SEC:
        call(*inputs)
        count += 1
    return elapsed / count


if __name__ == "__main__":
    main()
