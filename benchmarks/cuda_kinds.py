"""Compile the first guess of each of our kinds of CUDA sketches, without a GPU.

python -m benchmarks.cuda_kinds [--archs sm_80,sm_89,sm_90a] [--json FILE] [--add]

For each task of `benchmarks.gpu` and each architecture: the valid first guess of every sketch of our own
kinds, ptxas's figures of its kernels, and the estimated time.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import tvm

from benchmarks.gpu.programs import module_of
from benchmarks.gpu.tasks import COMPILED, GPU, RECORDED
from benchmarks.hosts import describe_host
from mallorn.core.targets import parse_target
from mallorn.core.values.machine import Machine
from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.roller.rank_candidates import Constructor
from mallorn.searchers.space import Sketch
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space

ARCHS: Final = ("sm_80", "sm_89", "sm_90a")
_MOST_GUESSES: Final = 12  # guesses of a sketch that are tried until one is valid
Row = dict[str, Any]


def main(argv: Sequence[str]) -> None:
    """Print a line per sketch; write all figures to a file if asked."""
    parser = argparse.ArgumentParser(prog="benchmarks.cuda_kinds", description=__doc__)
    parser.add_argument("--archs", default=",".join(ARCHS))
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--add", action="store_true", help="compile only programs that the file lacks")
    options = parser.parse_args(argv)
    kept = json.loads(options.json.read_text())["rows"] if options.add else []
    programs = modules()
    results: list[Row] = [row for row in kept if row["task"] in programs]
    known = {(row["task"], row["arch"]) for row in results}
    for name, module in programs.items():
        for arch in [arch for arch in options.archs.split(",") if (name, arch) not in known]:
            for row in rows(name, module, arch):
                results.append(row)
                print(
                    f"{row['task']:50} {arch:7} {row['kind']:22} {row['guess']:3} "
                    f"{row.get('estimated_us', 0):9.1f} us  {_words(row)}",
                    flush=True,
                )
    if options.json is not None:
        answer = {"benchmark": "cuda_kinds", **describe_host(), "summary": summary(results), "rows": results}
        options.json.write_text(json.dumps(answer, indent=1) + "\n")


def modules() -> Mapping[str, Any]:
    """Return the programs by name."""
    return {task.name: module_of(task) for task in (*GPU, *RECORDED, *COMPILED)}


def rows(name: str, module: Any, arch: str) -> Iterator[Row]:
    """Yield a row for each sketch of our own kinds: its first valid guess, compiled."""
    tir, target = str(tvm.ir.save_json(module)), parse_target({"kind": "cuda", "arch": arch}).text
    machine, loops = assume_typical_gpu(arch), nests(tir)
    for sketch in design_space(tir, target):
        if sketch.facts:
            facts = {key: value for key, value in sketch.facts.items() if key != "choices"}
            yield {"task": name, "arch": arch} | facts | _compile(tir, target, sketch, loops, machine)


def _compile(tir: str, target: str, sketch: Sketch, loops: Any, machine: Machine) -> Row:
    """Return the figures of the sketch's first valid guess; `guess` -1 if none was valid."""
    guesses = Constructor(loops, machine).guesses(sketch)
    for number, index in enumerate(np.argsort(guesses.us, kind="stable")[:_MOST_GUESSES]):
        us, decisions = guesses.us[index], tuple(int(factor) for factor in guesses.rows[index])
        schedule = rebuild(tir, target, sketch.trace, decisions)
        if schedule is not None:
            began_sec = time.perf_counter()
            try:
                library = compile_for_cuda(schedule.mod, parse_tvm_target(target))
            except Exception as error:  # the row holds the error
                return {"guess": number, "decisions": decisions, "error": str(error).strip()[-300:]}
            return {
                "guess": number,
                "decisions": decisions,
                "estimated_us": round(float(us), 2),
                "build_sec": round(time.perf_counter() - began_sec, 2),
                "kernels": [asdict(kernel) for kernel in library.kernels],
            }
    return {"guess": -1}


def summary(found: Sequence[Row]) -> Mapping[str, Any]:
    """Return counts and medians by kind and architecture."""
    groups: dict[str, list[Row]] = {}
    for row in found:
        groups.setdefault(f"{row['kind']} {row['arch']}", []).append(row)
    return {
        name: {
            "sketches": len(group),
            "first guess invalid": sum(row["guess"] != 0 for row in group),
            "no valid guess": sum(row["guess"] < 0 for row in group),
            "refused by nvcc": sum("error" in row for row in group),
            "spill": sum(any(k["spill_bytes"] for k in row.get("kernels", ())) for row in group),
            "median registers": _median(group, "registers"),
            "median warps an SM": _median(group, "warps_per_sm"),
            "most dynamic shared bytes": max(
                (k["dynamic_shared_bytes"] for row in group for k in row.get("kernels", ())), default=0
            ),
        }
        for name, group in groups.items()
    }


def _median(group: Sequence[Row], figure: str) -> float | None:
    values = [kernel[figure] for row in group for kernel in row.get("kernels", ())]
    return median(values) if values else None


def _words(row: Row) -> str:
    if "kernels" not in row:
        return str(row.get("error", "no valid guess"))
    return "; ".join(
        f"{k['registers']} registers, {k['spill_bytes']} bytes spilled, {k['dynamic_shared_bytes']} bytes "
        f"of shared memory, {k['warps_per_sm']} warps an SM"
        for k in row["kernels"]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
