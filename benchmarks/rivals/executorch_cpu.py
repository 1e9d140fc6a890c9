"""ExecuTorch with XNNPACK: exported and lowered ahead of time, run by its own runtime."""

from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings import portable_lib
from serving import Arrays, Run, serve
from torch_eager import convert


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """A program in which XNNPACK takes every operator that it has."""
    example = tuple(torch.from_numpy(array) for array in inputs.values())
    exported = torch.export.export(convert(model), example)
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    portable_lib._unsafe_reset_threadpool(threads)
    buffer = program.buffer
    kept = (portable_lib._load_for_executorch_from_buffer(buffer), buffer)  # the module reads from the buffer

    def run() -> list[Any]:
        return list(kept[0].forward(example))

    return run


if __name__ == "__main__":
    serve(load)
