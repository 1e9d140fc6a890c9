"""Check the first guesses of whole networks for a GPU, without a GPU.

python -m benchmarks.cuda_networks FOLDER [--precisions float32,fp16] [--arch sm_90a] [--compile]
    [--emulate OPERATIONS] [--json FILE]

For each ONNX file of the folder and each precision: the network's tasks under the recipe for GPUs, and for
each task the guesses that a job would try before one is valid, its kind and the estimated time. --compile
adds ptxas's figures. --emulate runs guesses of at most so many operations on the tests' emulator: their error
beside LLVM's result, relative to the largest value, and what the emulator finds wrong (races, reads out of
bounds or of what nobody wrote).
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm

from benchmarks.hosts import describe_host
from mallorn.core.targets import Target, parse_target
from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.roller.rank_candidates import Constructor, ranked
from mallorn.workers.device.random_and_saved_arrays import draw_arguments
from mallorn.workers.interfaces.model_compiler import ModelTask
from mallorn.workers.interfaces.tensor_arguments import FREE_RANGE
from mallorn.workers.tvm.network.extract_tasks import extract
from mallorn.workers.tvm.network.graph_recipes import recipe_for
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module, parse_tvm_target
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space
from tests.fixtures.cuda_emulator import Cost, run_kernel

_MOST_FAULTS: Final = 3  # of a task that the row holds
_MOST_GUESSES: Final = 12  # defaults of a task that a job tries before it draws
_NO_KIND: Final = "MetaSchedule"
Row = dict[str, Any]


def main(argv: Sequence[str]) -> None:
    """Print a line per task, then counts; write all figures to a file if asked."""
    parser = argparse.ArgumentParser(prog="benchmarks.cuda_networks", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--precisions", default="float32,fp16")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--compile", action="store_true", help="compile each first guess by nvcc")
    parser.add_argument(
        "--emulate", type=float, default=0.0, help="most operations of a task that is emulated"
    )
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args(argv)
    target = parse_target({"kind": "cuda", "arch": options.arch})
    results: list[Row] = []
    for network in sorted(options.folder.glob("*.onnx")):
        for precision in options.precisions.split(","):
            for row in rows(network, precision, target, options):
                results.append(row)
                print(
                    f"{row['network']:14} {row['precision']:8} {row['kind']:20} guess {row['guess']:2} "
                    f"{row.get('estimated_us', 0):9.1f} us {row['weight']:3} x {row['task']}",
                    flush=True,
                )
    answer = {"benchmark": "cuda_networks", **describe_host(), "summary": summary(results), "rows": results}
    print(json.dumps(answer["summary"], indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(answer, indent=1) + "\n")


def rows(network: Path, precision: str, target: Target, options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each task of a network."""
    recipe = recipe_for("tuned", target, precision)
    for task in extract(str(network), target.text, recipe, {}).tasks:
        yield {
            "network": network.stem,
            "precision": precision,
            "task": task.name,
            "weight": task.weight,
            "op": task.op,
            "flops": task.flops,
        } | first_guess(task, target, options)


def first_guess(task: ModelTask, target: Target, options: argparse.Namespace) -> Row:
    """Return the first valid default of a task; `guess` -1 if none is valid."""
    began_sec = time.perf_counter()
    machine = assume_typical_gpu(str(target.attrs["arch"]))
    loops, sketches = nests(task.tir), design_space(task.tir, target.text)
    by_key = {sketch.key: sketch for sketch in sketches}
    kinds = sorted({str(sketch.facts["kind"]) for sketch in sketches if sketch.facts})
    for number, guess in enumerate(ranked(sketches, loops, machine, _MOST_GUESSES)):
        sketch = by_key[guess.sketch]
        schedule = rebuild(task.tir, target.text, sketch.trace, guess.decisions)
        if schedule is None:
            continue
        us = Constructor(loops, machine).guesses(sketch).us.min()
        row: Row = {
            "kind": str(sketch.facts.get("kind", _NO_KIND if sketch.choices else "DLight")),
            "kinds": kinds,
            "guess": number,
            "estimated_us": round(float(us), 2),
            "seconds": round(time.perf_counter() - began_sec, 2),
        }
        if options.compile:
            try:
                library = compile_for_cuda(schedule.mod, parse_tvm_target(target.text))
                row["kernels"] = [asdict(kernel) for kernel in library.kernels]
            except Exception as error:  # the row holds the error
                row["error"] = str(error).strip()[-300:]
        if task.flops <= options.emulate:
            row |= emulate(task, schedule, target)
        return row
    return {"kind": "none", "kinds": kinds, "guess": -1}


def emulate(task: ModelTask, schedule: Any, target: Target) -> Row:
    """Return the error of a schedule's results on an emulator of CUDA, and what it finds wrong."""
    arrays = draw_arguments(task.args.with_full_byte_range().describe_draws(FREE_RANGE, (-1.0, 1.0)), 0)
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(parse_module(task.tir), target="llvm")["main"](*tensors)
    for place in task.args.outputs:
        arrays[place][...] = 0
    try:
        report = run_kernel(schedule, target.text, arrays)
    except Exception as error:  # the row holds the error
        return {"not_emulated": f"{type(error).__name__}: {error}"[-300:]}
    errors = []
    for place in task.args.outputs:
        result, expected = arrays[place].astype(np.float64), tensors[place].numpy().astype(np.float64)
        wrong = np.abs(result - expected)[~((result == expected) | np.isnan(result) & np.isnan(expected))]
        largest = float(np.nanmax(np.abs(expected), initial=0.0)) or 1.0
        errors.append(float(wrong.max(initial=0.0)) / largest)
    return {
        "worst_error": max(errors),
        "faults": [str(fault) for fault in report.faults[:_MOST_FAULTS]],
        "global_sectors": _waste(report.global_sectors.values()),
        "bank_conflicts": _waste(report.bank_conflicts.values()),
    }


def _waste(costs: Iterable[Any]) -> float:
    """Return how many times the least cost all accesses take."""
    total = sum(costs, Cost())
    return round(total.ratio, 3)


def summary(results: Sequence[Row]) -> Mapping[str, Any]:
    """Return counts of tasks by precision, and those whose first guess is not valid or not of our kinds."""
    answer: Row = {}
    for precision in dict.fromkeys(row["precision"] for row in results):
        of_precision = [row for row in results if row["precision"] == precision]
        answer[precision] = {
            "tasks": len(of_precision),
            "first guess invalid": sum(row["guess"] != 0 for row in of_precision),
            "no valid guess": sum(row["guess"] < 0 for row in of_precision),
            "refused by nvcc": sum("error" in row for row in of_precision),
            "spill": sum(any(k["spill_bytes"] for k in row.get("kernels", ())) for row in of_precision),
            "emulated": sum("worst_error" in row for row in of_precision),
            "not emulated": sum("not_emulated" in row for row in of_precision),
            "faulty": sum(bool(row.get("faults")) for row in of_precision),
            "worst error": max((row.get("worst_error", 0.0) for row in of_precision), default=0.0),
            "kinds": dict(Counter(row["kind"] for row in of_precision).most_common()),
        }
    return answer


if __name__ == "__main__":
    main(sys.argv[1:])
