"""Files as exporters write them come in, compile as a whole, and are right beside onnxruntime."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from mallorn.graphc.export.compile_network import random_inputs, run_library_once
from mallorn.workers.device.detect_host import detect_target
from mallorn.workers.tvm.compile.compile_model import compile_model
from mallorn.workers.tvm.network.graph_recipes import recipe_for

TOKENS = 400  # a square of int64 takes more than what is folded in ONNX, and is folded as Relax


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[int, Sequence[int]]],
    output: tuple[int, Sequence[int]],
    **constants: Any,
) -> onnx.ModelProto:
    """A model whose last node gives its output."""
    graph = helper.make_graph(
        nodes,
        "exported",
        [helper.make_tensor_value_info(name, *of) for name, of in inputs.items()],
        [helper.make_tensor_value_info(nodes[-1].output[0], *output)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def node(operator: str, given: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, given.split(), [output], **attributes)


def sliding_window() -> onnx.ModelProto:
    """Scores of tokens that are not further apart than an input says: torch's masks are sums of int64."""
    nodes = [
        node("Range", "zero count one", "places"),
        node("Unsqueeze", "places first", "columns"),
        node("Unsqueeze", "places last", "rows"),
        node("Sub", "rows columns", "all"),
        node("Flatten", "all", "flat"),
        node("Add", "flat shift", "apart"),
        node("LessOrEqual", "apart window", "near"),
        node("Where", "near scores least", "kept"),
        node("Softmax", "kept", "weights", axis=-1),
    ]
    return model(
        nodes,
        {
            "scores": (TensorProto.FLOAT, [TOKENS, TOKENS]),
            "shift": (TensorProto.INT64, [1, 1]),
            "window": (TensorProto.INT64, [1, 1]),
        },
        (TensorProto.FLOAT, [TOKENS, TOKENS]),
        zero=0,
        one=1,
        count=TOKENS,
        first=[0],
        last=[1],
        least=np.float32(-1e9),
    )


def forty_functions() -> onnx.ModelProto:
    """Element-wise functions in a row, of which TVM makes one kernel, named after all of them."""
    names = ("Sigmoid", "Tanh", "Softplus", "Relu", "Exp", "Sqrt", "Abs", "Floor", "Atan", "Neg")
    steps = [f"step_{at}" for at in range(4 * len(names))]
    nodes = [node(names[at % len(names)], given, steps[at]) for at, given in enumerate(("x", *steps[:-1]))]
    return model(nodes, {"x": (TensorProto.FLOAT, [8, 64])}, (TensorProto.FLOAT, [8, 64]))


EXPORTED: dict[str, Callable[[], onnx.ModelProto]] = {
    "a mask made of int64 constants of more than a megabyte": sliding_window,
    "a kernel whose name is longer than a file's": forty_functions,
}


@pytest.mark.parametrize("make", EXPORTED.values(), ids=EXPORTED)
def test_what_exporters_write_is_compiled_and_right(
    make: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    path, library, target = tmp_path / "model.onnx", str(tmp_path / "model.so"), detect_target()
    onnx.save(make(), path)
    compile_model(str(path), None, target.text, recipe_for("tuned", target), library, {})
    inputs = random_inputs(make(), {}, {})
    ours = run_library_once(library, list(inputs.values()), tvm.cpu())
    theirs: Sequence[Any] = onnxruntime.InferenceSession(path).run(None, inputs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
