"""MNN: converted for speed, in single precision."""

import tempfile
from typing import Any

import numpy as np
from serving import Arrays, Run, serve


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """A module of fixed shapes, so that layouts and weights are arranged once."""
    import _tools  # MNN's converter; the command around it installs packages and sends home what it converts
    import MNN  # prints when it is imported
    from MNN import expr

    runtime = MNN.nn.create_runtime_manager(
        ({"backend": "CPU", "numThread": threads, "precision": "high", "memory": "high", "power": "high"},)
    )
    with tempfile.TemporaryDirectory() as folder:
        converted = f"{folder}/model.mnn"
        words = ["-f", "ONNX", "--modelFile", model, "--MNNModel", converted, "--bizCode", "MNN"]
        _tools.mnnconvert(["mnnconvert", *words, "--optimizePrefer", "2"])
        net = MNN.nn.load_module_from_file(
            converted, list(inputs), [], runtime_manager=runtime, shape_mutable=False, rearrange=True
        )
    entries = [_entry(expr, array) for array in inputs.values()]

    def run() -> list[Any]:
        results = net.forward(entries)
        results = results if isinstance(results, list) else [results]
        return [expr.convert(result, expr.NCHW).read() for result in results]

    return run


def _entry(expr: Any, array: Any) -> Any:
    """MNN has no numbers of eight bytes."""
    if array.dtype == np.int64:
        return expr.const(array.astype(np.int32), list(array.shape), expr.NCHW, expr.int)
    return expr.const(array, list(array.shape), expr.NCHW, expr.float)


if __name__ == "__main__":
    serve(load)
