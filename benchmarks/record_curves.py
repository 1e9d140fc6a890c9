"""Record tuning curves for the planner's simulator: jobs tune all tasks of a model in turn.

python -m benchmarks.record_curves MODEL.onnx ... [--rounds 10] [--seed 0 ...] [--out FILE.parquet]

A cell is a model and a seed: one job on a new service, round-robin, 16 candidates per round. Finished
cells are stored at once; a second run records cells that are missing or have too few rounds.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.sim.curve_file import Cell, CurveFile
from benchmarks.sim.recording import record
from mallorn.workers.device.detect_host import detect_target

OUT: Final = Path("benchmarks/data/curves.parquet")


def main() -> None:
    args = _arguments()
    file = CurveFile(args.out)
    for model in args.models:
        for seed in args.seed:
            cell = Cell(model.stem, seed)
            if _is_recorded(file, cell, args.rounds):
                print(f"{cell.key}: recorded before", flush=True)
            else:
                _record(file, model, cell, args)
    total = len(file.rounds())
    print(f"rounds in {args.out}: {total}", flush=True)


def _record(file: CurveFile, model: Path, cell: Cell, args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="mallorn-curves-", ignore_cleanup_errors=True) as scratch:
        rounds, facts = record(model, detect_target(), args.rounds, cell, Path(scratch), {})
    file.add(cell, rounds, facts)
    seconds = sum(row.seconds for row in rounds)
    tasks = len({row.task for row in rounds})
    print(f"{cell.key}: {tasks} tasks, {len(rounds)} rounds, {seconds:.0f} s", flush=True)


def _is_recorded(file: CurveFile, cell: Cell, rounds: int) -> bool:
    facts = file.facts().get(cell.key)
    return facts is not None and int(facts["rounds"]) >= rounds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=10, help="of 16 candidates, for each task")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
