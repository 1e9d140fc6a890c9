"""Memory needed by a large model: `python -m benchmarks.import_memory --gb 1 --schedules DIR`.

Each step runs in a new process: the import and, given schedules (of a job on a small model of this
kind), the compilation and an engine's first run. Memory of mapped files is not counted: the kernel
can reclaim it.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks.hosts import describe_host

ROWS, COLUMNS = 4096, 8192
WEIGHTS: Final = "weights.bin"
LOOK_SEC: Final = 0.02
STATUS: Final = Path("/proc/self/status")


@dataclass(frozen=True)
class Taken:
    """Peak memory and seconds of a step."""

    peak_gb: float
    seconds: float


def write(path: Path, gigabytes: float, outside: bool) -> None:
    """Write a chain of products with weights of this size, each filled with its own number."""
    count = max(1, round(gigabytes * 1e9 / (4 * ROWS * COLUMNS) / 2)) * 2
    shapes = [(ROWS, COLUMNS) if i % 2 == 0 else (COLUMNS, ROWS) for i in range(count)]
    make = _external if outside else _embedded
    weights = [make(i, shape) for i, shape in enumerate(shapes)]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(count)]
    ends = [helper.make_tensor_value_info(name, 1, [4, ROWS]) for name in ("x0", f"x{count}")]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    if outside:
        with path.with_name(WEIGHTS).open("wb") as file:
            for i, shape in enumerate(shapes):
                np.full(shape, i, "float32").tofile(file)


def _embedded(number: int, shape: tuple[int, int]) -> TensorProto:
    return numpy_helper.from_array(np.full(shape, number, "float32"), f"w{number}")


def _external(number: int, shape: tuple[int, int]) -> TensorProto:
    size = 4 * ROWS * COLUMNS
    tensor = TensorProto(name=f"w{number}", data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", WEIGHTS), ("offset", number * size), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def main() -> None:
    """Write the model, and print each step's peak memory and seconds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--outside", action="store_true", help="weights in a file beside the model")
    parser.add_argument("--schedules", type=Path, help="what `mallorn tune --out` left of such a model")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results: dict[str, Taken] = {}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "large.onnx")
        _in_child(write, path, args.gb, args.outside)
        size_gb = sum(file.stat().st_size for file in Path(scratch).iterdir()) / 1e9
        steps: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {"import": (_import, (path,))}
        if args.schedules:
            library = Path(scratch, "large.so")
            steps |= {"compile": (_compile, (path, args.schedules, library)), "load": (_load, (library,))}
        for name, (work, given) in steps.items():
            taken = results[name] = _in_child(_run_watched, work, given)
            times = taken.peak_gb / size_gb
            print(
                f"{name}: {size_gb:.2f} GB of weights, {taken.peak_gb:.2f} GB at most ({times:.1f} times), "
                f"{taken.seconds:.1f} s"
            )
    if args.json:
        steps_found = {name: asdict(taken) for name, taken in results.items()}
        peak_gb = max(taken.peak_gb for taken in results.values())
        summary = f"{peak_gb:.2f} GB at most, {peak_gb / size_gb:.1f} times the weights"
        raw = {"headline": summary, "weights_gb": size_gb, "steps": steps_found}
        args.json.write_text(json.dumps(raw | describe_host(), indent=1) + "\n")


def _import(path: Path) -> None:
    from mallorn.workers.tvm.network.import_onnx_to_relax import load_network

    load_network(path)


def _compile(path: Path, schedules: Path, library: Path) -> None:
    from mallorn.core.targets import parse_target
    from mallorn.core.values.manifest import MANIFEST, read_manifest
    from mallorn.workers.tvm.compile.compile_model import compile_model

    manifest = read_manifest(schedules / MANIFEST)
    target = parse_target(manifest.target).text
    compile_model(str(path), str(schedules), target, manifest.recipe, str(library), {})


def _load(library: Path) -> None:
    import tvm
    from tvm import relax

    main = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())["main"]
    main(tvm.runtime.tensor(np.zeros((4, ROWS), "float32"))).numpy()


def _run_watched(work: Callable[..., None], args: tuple[Any, ...]) -> Taken:
    ended, peaks, started_sec = Event(), [0.0], time.monotonic()

    def watch() -> None:
        while not ended.wait(LOOK_SEC):
            peaks.append(max(peaks[-1], _own_gb()))

    watcher = Thread(target=watch)
    watcher.start()
    try:
        work(*args)
    finally:
        ended.set()
        watcher.join()
    return Taken(peaks[-1], time.monotonic() - started_sec)


def _own_gb() -> float:
    """Return the GB of anonymous memory of this process."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024 / 1e9


def _in_child(call: Callable[..., Any], *args: Any) -> Any:
    with get_context("spawn").Pool(1) as process:
        return process.apply(call, args)


if __name__ == "__main__":
    main()
