"""Random inputs of a model, the same for every engine that is compared."""

import numpy as np

from workers.faces.graphs import Ranges, Shapes
from workers.tvm.onnx_reader import read_model
from workers.tvm.templates import compiling as stock


def make_inputs(
    model_path: str,
    inputs_npz: str,
    seed: int,
    input_shapes: Shapes,
    input_ranges: Ranges,
) -> list[str]:
    """Write one array an input under the model's own names, in calling order, and return the names.

    `input_ranges` is what `extract` found; an integer input without one gets zeros and ones.
    """
    model = read_model(model_path)
    arrays = stock.random_inputs(model, input_shapes, input_ranges, seed)
    np.savez(inputs_npz, **arrays)
    return list(arrays)
