"""LiteRT with XNNPACK: converted from PyTorch, run by its interpreter."""

import tempfile
from typing import Any

import litert_torch
import torch
from ai_edge_litert.interpreter import Interpreter
from serving import Arrays, Run, serve
from torch_eager import convert


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """A flat buffer whose operators XNNPACK takes where it has them."""
    example = tuple(torch.from_numpy(array) for array in inputs.values())
    with tempfile.TemporaryDirectory() as folder:
        converted = f"{folder}/model.tflite"
        litert_torch.convert(convert(model), example).export(converted)
        interpreter = Interpreter(model_path=converted, num_threads=threads)
        interpreter.allocate_tensors()
    entries = [detail["index"] for detail in interpreter.get_input_details()]
    ends = [detail["index"] for detail in interpreter.get_output_details()]

    def run() -> list[Any]:
        for index, array in zip(entries, inputs.values(), strict=True):
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in ends]

    return run


if __name__ == "__main__":
    serve(load)
