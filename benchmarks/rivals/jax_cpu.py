"""JAX: the model read by jaxonnxruntime and compiled by XLA for this processor."""

import os
from typing import Any

import onnx
from serving import Arrays, Run, serve


def load(model: str, inputs: Arrays, threads: int) -> Run:
    """XLA takes its number of threads from the processors it may use."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    import jax
    from jaxonnxruntime.call_onnx import call_onnx_model

    arrays = [jax.numpy.asarray(array) for array in inputs.values()]
    function, weights = call_onnx_model(onnx.load(model), arrays)
    # One program with its weights in it: by itself each operator is one.
    compiled = jax.jit(lambda given: function(weights, given))

    def run() -> list[Any]:
        return jax.block_until_ready(compiled(arrays))

    return run


if __name__ == "__main__":
    serve(load)
