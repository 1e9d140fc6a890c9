"""Decoder library with caches: time per token at several cache lengths, and of prompts.

python -m benchmarks.decoding MODEL.onnx --schedules DIR [--past 64,512] [--prompts 128] [--python PYTHON]
                              [--raw FOLDER] [--json FILE]

DIR holds the schedules of a job with --dynamic for the tokens of a call and for cache lengths
from 0. onnxruntime and OpenVINO (in PYTHON) run the same file in two settings: float32, and
their fastest: inputs of 8 bits in onnxruntime (`accuracy_level` 4), OpenVINO's own choice of
precision. Engines are timed in turn, each stopped while another runs. A step reads every
weight of its products once: this rate is compared with the rate at which numpy sums memory,
which is no upper bound. FOLDER keeps a file per size; a second run adds missing sizes.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx

from benchmarks.cells import Cells
from benchmarks.dynamic import RANGE, Bench, Given
from benchmarks.hosts import describe_host
from mallorn.core.errors import InvalidRequest, MallornError
from mallorn.core.targets import parse_target
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.manifest import MANIFEST, read_manifest
from mallorn.workers.subprocesses.errors import ChildError
from mallorn.workers.whole_model.interleaved_timing import PASSES, Timeable

PRODUCTS: Final = ("MatMul", "Gemm", "MatMulNBits")
STREAMED: Final = 1 << 28  # bytes that each thread sums, to time the memory
NARROW_INPUTS: Final = 4  # accuracy_level 4: integer products of 8 bits
ONNXRUNTIME_BYTES, OPENVINO_OWN = "onnxruntime, inputs of 8 bits", "openvino_cpu, its own precision"


class DecoderBench(Bench):
    """A bench that also times other engines in their fastest precisions."""

    def others(self, stack: ExitStack, inputs: str) -> dict[str, Timeable]:
        """Return the other engines in float32 and in their fastest precision."""
        engines = super().others(stack, inputs)
        if (copy := with_narrow_inputs(self._given.model)) is not None:
            stack.callback(copy.unlink)
            engines[ONNXRUNTIME_BYTES] = self.onnxruntime(stack, ONNXRUNTIME_BYTES, copy, inputs)
        return engines | self.openvino(stack, OPENVINO_OWN, inputs, OPENVINO_PRECISION="default")


def with_narrow_inputs(model: Path) -> Path | None:
    """Save a copy whose MatMulNBits take 8-bit inputs; return None if there are none."""
    proto = onnx.load(str(model), load_external_data=False)
    products = [node for node in proto.graph.node if node.op_type == "MatMulNBits"]
    for node in products:
        others = [attribute for attribute in node.attribute if attribute.name != "accuracy_level"]
        del node.attribute[:]
        node.attribute.extend([*others, onnx.helper.make_attribute("accuracy_level", NARROW_INPUTS)])
    copy = model.with_name(f"{model.stem}-narrow-inputs.onnx")
    if products:
        onnx.save(proto, str(copy))
    return copy if products else None


def main() -> None:
    """Compile the range, time steps and prompts, and print the headline."""
    options = _arguments()
    try:
        steps, prompts, rate = measured(options)
    except (MallornError, ChildError) as error:
        sys.exit(str(error))
    size = weights_read(options.model)
    summary = headline(steps, prompts, size, rate)
    if options.json:
        raw = {"headline": summary, "model": options.model.name, "steps": steps, "prompts": prompts}
        raw |= {"weights_bytes": size, "memory_gb_s": rate}
        options.json.write_text(json.dumps(raw | describe_host(), indent=1) + "\n")
    print(summary)


def measured(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[dict[str, Any]], float]:
    """Return the figures of steps and prompts, and the memory rate in GB/s."""
    manifest = read_manifest(options.schedules / MANIFEST)
    dynamic = manifest.dynamic
    if dynamic is None or len(dynamic.growing_dimensions) != 1 or len(dynamic.ranges) != 2:
        raise InvalidRequest(
            f"{options.schedules} is no decoder's with caches that grow",
            hint="mallorn tune MODEL --dynamic sequence=1..128 --dynamic past=0..2048 --out DIR",
        )
    cells = Cells(options.raw)
    rate = memory_rate(parse_target(manifest.target).num_cores)
    with TemporaryDirectory(prefix="mallorn-decoding-") as scratch:
        setup = Given(options.model, options.schedules, options.python, options.passes)
        bench = DecoderBench(setup, dynamic, Path(scratch))
        steps = [_time(bench, cells, options.model.stem, dynamic, 1, past) for past in options.past]
        prompts = [_time(bench, cells, options.model.stem, dynamic, rows, 0) for rows in options.prompts]
    return steps, prompts, rate


def memory_rate(threads: int) -> float:
    """Return the GB/s at which `threads` threads sum arrays together."""
    arrays = [np.ones(STREAMED // 8) for _ in range(threads)]
    best_sec = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(8):
            started = time.perf_counter()
            list(pool.map(np.sum, arrays))
            best_sec = min(best_sec, time.perf_counter() - started)
    return threads * STREAMED / best_sec / 1e9


def _time(bench: Bench, cells: Cells, model: str, dynamic: Dynamic, rows: int, past: int) -> dict[str, Any]:
    """Time all engines at one size unless stored; print and return its figures."""
    (grows,) = dynamic.growing_dimensions
    tokens = next(name for name in dynamic.ranges if name != grows)
    name = f"{model}-{rows}-behind-{past}"
    if name not in cells:
        cells.keep(name, bench.at({tokens: rows, grows: past}))
    cell = cells[name]
    latencies = "  ".join(f"{engine} {us / 1e3:.3f} ms" for engine, us in cell["us"].items())
    print(f"{rows} tokens behind {past}: {latencies}", flush=True)
    return cell


def weights_read(model: Path) -> int:
    """Return the bytes of constant operands of products, in their stored types."""
    graph = onnx.load(str(model), load_external_data=False).graph
    sizes = {tensor.name: _bytes(tensor) for tensor in graph.initializer}
    before = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Transpose"}
    read = {
        before.get(name, name) for node in graph.node if node.op_type in PRODUCTS for name in node.input[1:]
    }
    return sum(sizes.get(name, 0) for name in read)


def _bytes(tensor: Any) -> int:
    return prod(tensor.dims) * int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def headline(
    steps: Sequence[dict[str, Any]], prompts: Sequence[dict[str, Any]], size: int, rate: float
) -> str:
    """Describe tokens/s of steps, their share of the memory rate, and ms to a first token."""
    parts = []
    for cell in steps:
        figures = ", ".join(f"{name} {1e6 / us:.1f}" for name, us in cell["us"].items())
        share = size / cell["us"][RANGE] / 1e3 / rate
        parts.append(f"tokens a second behind {_past(cell)}: {figures} ({share:.0%} of memory's rate)")
    for cell in prompts:
        figures = ", ".join(f"{name} {us / 1e3:.1f}" for name, us in cell["us"].items())
        parts.append(f"ms to the first token of {_rows(cell)}: {figures}")
    return "; ".join(parts)


def _rows(cell: dict[str, Any]) -> int:
    return int(next(iter(cell["sizes"].values())))


def _past(cell: dict[str, Any]) -> int:
    return int(list(cell["sizes"].values())[-1])


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def _arguments() -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--schedules", type=Path, required=True, help="of a job with --dynamic")
    parser.add_argument("--past", type=_numbers, default=[64, 512], help="lengths of caches, with commas")
    parser.add_argument("--prompts", type=_numbers, default=[128], help="tokens of prompts, with commas")
    parser.add_argument("--python", help="an interpreter that has OpenVINO")
    parser.add_argument("--passes", type=int, default=PASSES, help="bursts of each engine at each size")
    parser.add_argument("--raw", type=Path, default=Path("docs/results/decoding"))
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
