"""How much memory the import of a large model takes: `python -m benchmarks.import_memory --gb 1`."""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from workers.tvm.model import load_network

ROWS, COLUMNS = 4096, 8192


def write(path: Path, gigabytes: float, outside: bool) -> None:
    """A chain of products with weights of so many gigabytes."""
    count = max(1, round(gigabytes * 1e9 / (4 * ROWS * COLUMNS) / 2)) * 2
    shapes = [(ROWS, COLUMNS) if at % 2 == 0 else (COLUMNS, ROWS) for at in range(count)]
    weights = [numpy_helper.from_array(np.full(s, at, "float32"), f"w{at}") for at, s in enumerate(shapes)]
    nodes = [helper.make_node("MatMul", [f"x{at}", f"w{at}"], [f"x{at + 1}"]) for at in range(count)]
    ends = [helper.make_tensor_value_info(name, 1, [4, ROWS]) for name in ("x0", f"x{count}")]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path), save_as_external_data=outside, location="weights.bin")


def main() -> None:
    """Write the model in another process, import it in this one, and print the peak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--outside", action="store_true", help="weights in a file beside the model")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.onnx")
        _apart(write, path, args.gb, args.outside)
        size_bytes = sum(file.stat().st_size for file in Path(folder).iterdir())
        before, started_sec = _peak_bytes(), time.monotonic()
        load_network(path)
        seconds = time.monotonic() - started_sec
        more_gb = (_peak_bytes() - before) / 1e9
        print(f"{size_bytes / 1e9:.2f} GB on disk, {more_gb:.2f} GB more, {seconds:.1f} s")


def _apart(call: object, *args: object) -> None:
    from multiprocessing import get_context

    process = get_context("spawn").Process(target=call, args=args)  # type: ignore[arg-type]
    process.start()
    process.join()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
