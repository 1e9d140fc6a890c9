"""Small ONNX graphs, and tensor programs by the operator they compute."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from mallorn.workers.tvm.programs.tensor_intrinsics import load_intrinsics

# As a worker does. Left to the first test's import, TVM's parser reads the sources of pytest's whole stack.
load_intrinsics('{"kind":"llvm"}')

Shape = Sequence[int | str]
BuildModel = Callable[..., ModelProto]


def _graph(nodes: Sequence[NodeProto], shape: Shape, weights: Sequence[TensorProto]) -> GraphProto:
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("a", "b"))
    return helper.make_graph(nodes, "g", [source], [result], initializer=weights)


@pytest.fixture(scope="session")
def build_model() -> BuildModel:
    """A model from its nodes: x -> y, with a weight w of 8 x 8."""

    def build(nodes: Sequence[NodeProto] | None = None, shape: Shape = (4, 8)) -> ModelProto:
        weight = numpy_helper.from_array(np.ones((8, 8), "float32"), "w")
        nodes = nodes or [helper.make_node("MatMul", ["x", "w"], ["y"])]
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(_graph(nodes, shape, [weight]), opset_imports=opsets, ir_version=9)

    return build


@pytest.fixture(scope="session")
def program_of() -> Callable[..., Any]:
    """A module with one tensor program from TE tensors, inputs first."""
    import tvm
    from tvm import te

    def build(*tensors: Any) -> Any:
        return tvm.IRModule({"main": te.create_prim_func(list(tensors))})

    return build
