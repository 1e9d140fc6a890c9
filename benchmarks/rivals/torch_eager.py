"""PyTorch as it is written: the model read by onnx2torch, run eagerly."""

from typing import Any

import onnx
import onnx2torch
import torch
from onnx.compose import add_prefix
from serving import Arrays, Run, serve


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """The module in inference mode."""
    torch.set_num_threads(threads)
    return runner(convert(model), inputs)


def convert(model: str) -> Any:
    """The network as a module; its names get a prefix, or a weight named `half` would hide a method."""
    return onnx2torch.convert(add_prefix(onnx.load(model), "onnx_")).eval()


def runner(module: Any, inputs: Arrays) -> Run:
    """Runs a module on fixed inputs."""
    tensors = [torch.from_numpy(array) for array in inputs.values()]

    def run() -> list[Any]:
        with torch.inference_mode():
            result = module(*tensors)
        return list(result) if isinstance(result, tuple | list) else [result]

    return run


if __name__ == "__main__":
    serve(load)
