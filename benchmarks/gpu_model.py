"""Compare the time models of GPU sketches with recorded kernels, without a GPU.

python -m benchmarks.gpu_model [--recording NAME] [--json FILE]

For each recorded task: how many of its kernels have an estimate, the rank correlation of estimates with
times, the time of the kernel with the least estimate over the least time, and the median of estimate over
time. The part `tensor cores` does the same with the formulas of our own kinds (`kernel_us`), applied to
MetaSchedule's tiles for tensor cores: no kernel of our own kinds was measured yet.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm
from numpy.typing import NDArray

from benchmarks.gpu.programs import module_of
from benchmarks.gpu.tasks import BY_NAME
from benchmarks.hosts import describe_host
from benchmarks.lab.shipped_recordings import shipped_recording
from mallorn.core.values.machine import Machine, peak_gflops
from mallorn.searchers.loop_nest import Nest
from mallorn.searchers.roller.rank_candidates import Constructor
from mallorn.searchers.space import Sketch
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn_research.replay.recording_file import RecordedTask, read_tasks

Column = NDArray[np.float64]
_FEWEST: Final = 3  # estimates from which a rank correlation says anything
_COLUMNS: Final = ("kernels", "estimated", "rank_correlation", "first_guess_ratio", "estimate_ratio")


def main(argv: Sequence[str]) -> None:
    """Print both tables; write them to a file if asked."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu_model", description=__doc__)
    parser.add_argument("--recording", default="h200", help="name of a shipped recording")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args(argv)
    parts = tables(options.recording)
    for name, figures in parts.items():
        print(f"{name:40}", *(f"{column:>18}" for column in _COLUMNS))
        for task_name, row in figures.items():
            print(f"{task_name:40}", *(f"{row[column]!s:>18}" for column in _COLUMNS))
    if options.json is not None:
        answer = {"benchmark": "gpu_model", **describe_host(), "recording": options.recording, **parts}
        options.json.write_text(json.dumps(answer, indent=1) + "\n")


def tables(recording: str) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the figures of each recorded task by the product's models and by our kinds' formulas."""
    parts: dict[str, dict[str, dict[str, float | None]]] = {"models": {}, "tensor cores": {}}
    for task in read_tasks(shipped_recording(recording)):
        loops = tuple(nests(str(tvm.ir.save_json(module_of(BY_NAME[task.name])))))
        constructor = Constructor(loops, task.machine)
        parts["models"][task.name] = _figures(
            task, lambda sketch, rows, of=constructor: of.time_us(sketch, rows)
        )
        parts["tensor cores"][task.name] = _figures(
            task, lambda sketch, rows, of=loops, on=task.machine: _by_kernel(sketch, rows, of, on)
        )
    return parts


def _figures(task: RecordedTask, estimate: Any) -> dict[str, float | None]:
    sketches = {sketch.key: sketch for sketch in task.sketches}
    estimates, times = [], []
    for trial in task.trials:
        if trial.latency_us is not None:
            rows = np.array([trial.candidate.decisions], dtype=np.int32)
            us = estimate(sketches[trial.candidate.sketch], rows)
            estimates.append(np.nan if us is None else float(us[0]))
            times.append(trial.latency_us)
    has_estimate = ~np.isnan(estimates)
    guessed, measured = np.array(estimates)[has_estimate], np.array(times)[has_estimate]
    row: dict[str, float | None] = {"kernels": len(times), "estimated": len(guessed)}
    if len(guessed) < _FEWEST:
        return row | dict.fromkeys(_COLUMNS[2:])
    ranks = [np.argsort(np.argsort(values)) for values in (guessed, measured)]
    return row | {
        "rank_correlation": round(float(np.corrcoef(*ranks)[0, 1]), 3),
        "first_guess_ratio": round(float(measured[guessed.argmin()] / min(times)), 2),
        "estimate_ratio": round(float(np.median(guessed / measured)), 2),
    }


def _by_kernel(sketch: Sketch, rows: Any, loops: Sequence[Nest], machine: Machine) -> Column | None:
    """Return the times of `kernel_us` for MetaSchedule's tiles for tensor cores, else None."""
    from mallorn.kinds.cuda.compute_capability import SHARED_RESERVED, WARP_SIZE
    from mallorn.kinds.cuda.times import kernel_time
    from mallorn.kinds.cuda.times.metaschedule_tiles import (
        GPU_LEVELS,
        TiledSketch,
        loaded_bytes,
    )
    from mallorn.searchers.sketch_blocks import blocks

    if not TiledSketch.fits(sketch) or "mma_sync" not in sketch.trace:
        return None
    (block,) = blocks(sketch)
    model: Any = TiledSketch(sketch, loops, machine)
    nest, stages = model._nest, model._stages
    factors = np.hstack([rows[:, place.columns] for place in block.tile_choices]).astype(np.float64)
    count = len(block.spatial)
    tiles = factors[:, : GPU_LEVELS * count].reshape(len(rows), count, GPU_LEVELS)
    depth = factors[:, GPU_LEVELS * count :].reshape(len(rows), len(block.reduced), -1)
    across, tile, own = tiles.prod(axis=1), tiles[:, :, 2:].prod(axis=2), tiles[:, :, 3:].prod(axis=2)
    steps, step = depth[:, :, 0].prod(axis=1), depth[:, :, 1:].prod(axis=2)
    reads = [loaded_bytes(read, np.hstack([tile, step])) for read in nest.reads]
    copied = np.sum([size for size, _ in reads], axis=0)
    fetched = np.sum([size * waste for size, waste in reads], axis=0)
    warps, fragments, deep = across[:, 2], own.prod(axis=1), step.prod(axis=1)
    bytes_of = [read.element_bytes for read in nest.reads]
    loads = warps * deep * (own[:, 0] * bytes_of[0] + own[:, -1] * bytes_of[1])
    results = tile.prod(axis=1) * nest.write.element_bytes
    staged = warps * tiles[:, -1, 3:].prod(axis=1) * nest.write.element_bytes if stages == 1 else 0.0
    products = warps * fragments * deep * prod(model._fragment) / (16 * 8 * 16)
    copies = copied / WARP_SIZE / 8
    kernel = kernel_time.KernelWork(
        blocks=across[:, 0] * across[:, 1] * model._batch,
        threads=warps * WARP_SIZE,
        registers=kernel_time.OVERHEAD_REGISTERS
        + fragments * nest.write.element_bytes / 4 / WARP_SIZE
        + 8 * (own[:, 0] + own[:, -1]),
        shared_bytes=stages * copied + staged,
        steps=steps + 1,
        bytes_in_flight=np.minimum(fetched * max(1, stages - 1), warps * WARP_SIZE * 64),
        l2_bytes=steps * fetched + results,
        memory_bytes=np.full(
            len(rows), model._batch * sum(prod(a.shape) * a.element_bytes for a in nest.accesses)
        ),
        instructions=steps * (products + loads / 512 + 4 * copies),
        shared_traffic=steps * (copied + loads),
        operations=2 * tile.prod(axis=1) * deep * steps * prod(model._fragment),
        peak_gflops=peak_gflops(machine, ["float16"]),
        filling=warps * fragments / kernel_time.FRAGMENTS_FILLED,
        stages=float(stages),
    )
    return kernel_time.kernel_us(kernel, machine, machine.caches[0].bytes - SHARED_RESERVED)


if __name__ == "__main__":
    main(sys.argv[1:])
