"""A small typed builder of ONNX graphs, with seeded random weights."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET = 17  # the first with LayerNormalization
IR_VERSION = 8  # released together with this opset


class GraphBuilder:
    """Collects nodes in execution order; methods return the names of the values they make.

    The same seed and the same calls give the same bytes.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._rng = np.random.default_rng(seed)
        self._inputs: list[ValueInfoProto] = []
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []

    def input(self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> str:
        """Add an input to the network, and return its name."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """Add `array` as an initializer, and return its name."""
        self._initializers.append(numpy_helper.from_array(array, name))
        return name

    def scalar(self, name: str, value: float) -> str:
        """Append a float32 Constant node; an initializer would become a parameter."""
        tensor = numpy_helper.from_array(np.array(value, np.float32), name)
        self._nodes.append(helper.make_node("Constant", [], [name], name=name, value=tensor))
        return name

    def normal(self, name: str, shape: Sequence[int], std: float) -> str:
        """Add an initializer of normally distributed weights with mean 0."""
        return self.constant(name, self._rng.standard_normal(shape, np.float32) * np.float32(std))

    def weight(self, name: str, shape: Sequence[int], fan_in: int, gain: float = math.sqrt(2)) -> str:
        """Add weights with deviation gain / sqrt(fan_in); the default gain is He's."""
        return self.normal(name, shape, gain / math.sqrt(fan_in))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append a node of operator `kind`, and return the name of its output."""
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def split(self, x: str, axis: int, parts: int = 2) -> list[str]:
        """Append a Split of an axis into equal parts; return the names of the parts."""
        names = [f"split_{len(self._nodes)}_{part}" for part in range(parts)]
        self._nodes.append(helper.make_node("Split", [x], names, name=names[0], axis=axis))
        return names

    def conv(
        self,
        x: str,
        name: str,
        channels: tuple[int, int],
        kernel: int,
        *,
        stride: int = 1,
        group: int = 1,
        gain: float = math.sqrt(2),
    ) -> str:
        """Append a convolution with square kernel and bias, as after folding batch norm."""
        c_in, c_out = channels
        fan_in = c_in // group * kernel * kernel
        weight = self.weight(f"{name}.weight", (c_out, c_in // group, kernel, kernel), fan_in, gain)
        bias = self.normal(f"{name}.bias", (c_out,), 0.1)
        return self.op(
            "Conv",
            x,
            weight,
            bias,
            dilations=[1, 1],
            group=group,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        )

    def gemm(self, x: str, name: str, features: tuple[int, int], gain: float = 1.0) -> str:
        """Append a fully connected layer; its weights have the shape (outputs, inputs)."""
        f_in, f_out = features
        weight = self.weight(f"{name}.weight", (f_out, f_in), f_in, gain)
        bias = self.normal(f"{name}.bias", (f_out,), 0.1)
        return self.op("Gemm", x, weight, bias, transB=1)

    def build(self, output: str, shape: Sequence[int] | None) -> ModelProto:
        """Return the model; its only output is the value made last, renamed to `output`.

        With a shape of None the output has no shape; ONNX tools infer it.
        """
        self._nodes[-1].output[0] = output
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self._nodes, self._name, self._inputs, outputs, self._initializers)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(
            graph, producer_name="mallorn-examples", opset_imports=[opset], ir_version=IR_VERSION
        )
