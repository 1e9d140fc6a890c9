"""JAX: the model read by jaxonnxruntime and compiled by XLA for this processor."""

import os
from typing import Any

import onnx
from serving import Arrays, Run, serve


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """XLA takes its number of threads from the processors it may use."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    import jax
    from jaxonnxruntime.backend import Backend

    prepared = Backend.prepare(onnx.load(model))
    arrays = [jax.numpy.asarray(array) for array in inputs.values()]

    def run() -> list[Any]:
        return [jax.block_until_ready(output) for output in prepared.run(arrays)]

    return run


if __name__ == "__main__":
    serve(load)
