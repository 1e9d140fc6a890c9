"""Cost models side by side, and beside MetaSchedule's own, on frozen rows: no device, no compiler.

python -m benchmarks.costmodels [MODEL ...] [--data recorded|synthetic|PATH] [--cells FILE] [--json FILE]

Within task a model learns from the first 60 % of each task's rows and is judged on the rest; by task it is
judged on tasks that it never saw, five folds; by network on networks none of whose tasks it saw, where the
data tells networks (PATH: what `benchmarks.costmodels.freeze` or `mallorn dataset export` wrote). All models
get the same candidates in the same folds. A figure is the mean over tasks, ± the standard deviation over
seeds. `metaschedule` is TVM's own model and needs `freeze`, as do all models that read lowered programs;
`scrambled` learns from labels dealt anew within each task, and must order at chance. One model learns all
tasks at once, whatever family a job would put them in. With --cells every finished run is stored at once, and
a second start makes only those that are missing. `mallorn costmodels evaluate` is the same on one split.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.costmodels.arms import ALL, able
from benchmarks.costmodels.cells import cells, parse, run_all
from benchmarks.costmodels.report import Report, headline, lines, summarise
from benchmarks.costmodels.rows import LEAST_ROWS, Bench, load
from benchmarks.hosts import describe_host
from benchmarks.lab.cell_file import CellFile
from mallorn.core.errors import MallornError


def main() -> None:
    """Run what is missing, then tell what all of it comes to."""
    options = _arguments()
    # One thread a process: boosters that wait for each other on small data take many times as long.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        _compare(options)
    except MallornError as error:
        sys.exit(f"{error.message}\n{error.hint}")


def _compare(options: argparse.Namespace) -> None:
    bench = load(options.data, options.least_rows)
    arms = list(able(options.models or ALL, bench.stored))
    told = _rows_in_words(bench)
    print(f"{told['rows']} rows of {told['tasks']} tasks, snapshot {told['snapshot']}, {bench.fingerprint}")
    known, wanted = CellFile(options.cells, parse), list(cells(bench, arms, options.seeds))
    missing = [cell for cell in wanted if cell not in known]
    for count, finished in enumerate(
        run_all(bench, options.data, options.least_rows, missing, options.jobs), 1
    ):
        known.add(finished)
        cell = finished.cell
        print(f"{count} of {len(missing)}: {cell.arm} {cell.split} {cell.fold}, seed {cell.seed}", flush=True)
    report = summarise(known.of(wanted))
    print("\n".join(lines(report)))
    if options.json:
        options.json.write_text(json.dumps(_raw(report, told, options.seeds), indent=1) + "\n")
    print(headline(report))


def _rows_in_words(bench: Bench) -> dict[str, Any]:
    return {
        "snapshot": bench.training_data.snapshot,
        "fingerprint": bench.fingerprint,
        "rows": bench.training_data.rows,
        "tasks": len(bench.training_data.tasks),
        "networks": sorted(bench.networks),
        "skipped": dict(bench.training_data.skipped),
        "full_programs": bench.full_programs,
    }


def _raw(report: Report, told: dict[str, Any], seeds: int) -> dict[str, Any]:
    return {"headline": headline(report), **told, "seeds": seeds, "splits": report} | describe_host()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {', '.join(ALL)}")
    parser.add_argument("--data", default="recorded", help="recorded, synthetic, or Parquet files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--least-rows", type=int, default=LEAST_ROWS, help="valid ones, of a task that counts"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes; their times are those of a busy host")
    parser.add_argument("--cells", type=Path, help="where finished runs are stored, as JSON lines")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
