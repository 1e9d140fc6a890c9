"""Build ONNX models of independent branches; each is one task, such as a Conv with Relu."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper
from onnx.shape_inference import infer_shapes

from mallorn_research.generate.task_rule_file import Drawn, Values

OPSET: Final = 17
IR_VERSION: Final = 8
WEIGHT_STD: Final = 0.1  # keeps activations within float32


@dataclass(slots=True)
class Branch:
    """Collects the ONNX nodes, inputs and weights of a task, all named with its `prefix`."""

    prefix: str
    rng: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    inputs: list[ValueInfoProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def input(self, *shape: int) -> str:
        name = f"{self.prefix}_in{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def weight(self, *shape: int) -> str:
        name = f"{self.prefix}_w{len(self.weights)}"
        values = self.rng.standard_normal(shape, np.float32) * np.float32(WEIGHT_STD)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.prefix}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name


def _conv(branch: Branch, shape: Values, groups: int, filters: int) -> str:
    channels, kernel, stride = shape["channels"], shape["kernel"], shape["stride"]
    return branch.op(
        "Relu",
        branch.op(
            "Conv",
            branch.input(shape["batch"], channels, shape["size"], shape["size"]),
            branch.weight(filters, channels // groups, kernel, kernel),
            branch.weight(filters),
            group=groups,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        ),
    )


def conv(branch: Branch, shape: Values) -> str:
    """Append Conv, biased as after batch-norm folding, and Relu; return its output name."""
    return _conv(branch, shape, 1, shape["filters"])


def depthwise(branch: Branch, shape: Values) -> str:
    """Append a depthwise Conv with bias, and Relu; return its output name."""
    return _conv(branch, shape, shape["channels"], shape["channels"])


def dense(branch: Branch, shape: Values) -> str:
    """Append Gemm (a fully connected layer) and Relu; return its output name."""
    weight, bias = branch.weight(shape["columns"], shape["inner"]), branch.weight(shape["columns"])
    x = branch.input(shape["rows"], shape["inner"])
    return branch.op("Relu", branch.op("Gemm", x, weight, bias, transB=1))


def matmul(branch: Branch, shape: Values) -> str:
    """Append MatMul of two batched inputs, as in attention; return its output name."""
    left = branch.input(shape["batch"], shape["rows"], shape["inner"])
    return branch.op("MatMul", left, branch.input(shape["batch"], shape["inner"], shape["columns"]))


def softmax(branch: Branch, shape: Values) -> str:
    """Append Softmax over the last axis; return its output name."""
    return branch.op("Softmax", branch.input(shape["rows"], shape["columns"]), axis=-1)


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds tasks of one kind; `pattern` matches the names that the import gives them."""

    build: Callable[[Branch, Values], str]
    dimensions: tuple[str, ...]
    pattern: str


BUILDERS: Final[Mapping[str, Builder]] = {
    "conv": Builder(conv, ("batch", "channels", "filters", "size", "kernel", "stride"), "*conv2d*"),
    "depthwise": Builder(depthwise, ("batch", "channels", "size", "kernel", "stride"), "*conv2d*"),
    "dense": Builder(dense, ("rows", "inner", "columns"), "*matmul*"),
    "matmul": Builder(matmul, ("batch", "rows", "inner", "columns"), "*matmul*"),
    "softmax": Builder(softmax, ("rows", "columns"), "*softmax*"),
}
DIMENSIONS: Final = {name: builder.dimensions for name, builder in BUILDERS.items()}


def only_patterns(tasks: Sequence[Drawn]) -> list[str]:
    """Return the job option `only`, which limits tuning to these tasks."""
    return sorted({BUILDERS[task.build].pattern for task in tasks})


def network(tasks: Sequence[Drawn]) -> ModelProto:
    """Build a model with one branch per task; the same tasks give the same bytes."""
    branches = [Branch(f"t{number}", np.random.default_rng(number)) for number in range(len(tasks))]
    outputs = []
    for branch, task in zip(branches, tasks, strict=True):
        output = BUILDERS[task.build].build(branch, dict(task.shape))
        outputs.append(helper.make_empty_tensor_value_info(output))
    graph = helper.make_graph(
        [node for branch in branches for node in branch.nodes],
        "generated",
        [value for branch in branches for value in branch.inputs],
        outputs,
        [weight for branch in branches for weight in branch.weights],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, producer_name="mallorn", opset_imports=opsets, ir_version=IR_VERSION)
    inferred = infer_shapes(model, strict_mode=True)
    checker.check_model(inferred, full_check=True)
    return inferred
