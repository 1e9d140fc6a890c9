"""Collect the nodes that replace an ONNX node, knowing its inputs' types and constants."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mallorn.graphc.onnx import fold_shapes, inline_functions, read_with_weights_on_disk


class KnownValues:
    """Types and constants of a model's values, computed on first use."""

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self.opset = inline_functions.opset_of(model)

    @cached_property
    def types(self) -> Mapping[str, TypeProto]:
        """The types of the model's values by name, as far as they are known."""
        return inline_functions.types_of(self._model)

    @cached_property
    def constants(self) -> Mapping[str, TensorProto]:
        return {tensor.name: tensor for tensor in self._model.graph.initializer}

    @cached_property
    def producers(self) -> Mapping[str, NodeProto]:
        return {name: node for node in self._model.graph.node for name in node.output}


class NodeRewriter:
    """Collects nodes and constants to replace a node; `index` selects one of its inputs."""

    def __init__(self, node: NodeProto, values: KnownValues) -> None:
        self.node, self._values, self.opset = node, values, values.opset
        self._name = next(filter(None, node.output))  # unused outputs have no name
        self.constants: list[TensorProto] = []
        self.nodes: list[NodeProto] = []

    def attribute(self, name: str, default: Any) -> Any:
        match = next((a for a in self.node.attribute if a.name == name), None)
        return default if match is None else helper.get_attribute_value(match)

    def has_output(self, output: int) -> bool:
        return len(self.node.output) > output and bool(self.node.output[output])

    def input_element_type(self, index: int) -> int:
        """Return an input's element type; 0 if it is unknown."""
        value_type = self._values.types.get(self.node.input[index])
        return 0 if value_type is None else value_type.tensor_type.elem_type

    def producer(self, index: int) -> NodeProto | None:
        """Return the node that computes an input; None for a constant or the graph's input."""
        return self._values.producers.get(self.node.input[index])

    def has_input(self, index: int) -> bool:
        return len(self.node.input) > index and bool(self.node.input[index])

    def sizes(self, index: int) -> tuple[int, ...] | None:
        """Return an input's sizes; None unless all are known."""
        return fold_shapes.sizes_of(self._values.types.get(self.node.input[index]))

    def value(self, index: int) -> Any | None:
        """Return an input's array; None if it is not constant."""
        name = self.node.input[index] if len(self.node.input) > index else ""
        tensor = self._values.constants.get(name)
        return None if tensor is None else read_with_weights_on_disk.read_tensor(tensor)

    def constant(self, value: Any) -> str:
        name = f"{self._name}/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def integers(self, *numbers: int) -> str:
        """Add a constant of int64 numbers and return its name."""
        return self.constant(np.array(numbers, "int64"))

    def append_size(self, name: str, axis: int) -> str:
        """Append nodes for a value's size along an axis; return the result's name."""
        return self.write("Gather", self.write("Shape", name), self.constant(np.int64(axis)))

    def append_range(self, count: str) -> str:
        """Append a node for the vector 0, 1, ..., count - 1; return its result's name."""
        return self.write("Range", self.constant(np.int64(0)), count, self.constant(np.int64(1)))

    def number(self, value: float, index: int = 0) -> str:
        """Add a scalar constant of the type of input `index` and return its name."""
        kind = self.input_element_type(index) or TensorProto.FLOAT
        return self.constant(np.array(value, helper.tensor_dtype_to_np_dtype(kind)))

    def write(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        result = name or f"{self._name}/step_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [result], **attributes))
        return result

    def write_along(self, operator: str, data: str, axis: int, name: str = "", **attributes: Any) -> str:
        """Append an Unsqueeze or a ReduceSum; its axis is an attribute before opset 13."""
        if self.opset < 13:
            return self.write(operator, data, name=name, axes=[axis], **attributes)
        return self.write(operator, data, self.integers(axis), name=name, **attributes)

    def copy(self, inputs: Sequence[str] = (), outputs: Sequence[str] = (), **attributes: Any) -> None:
        """Append a copy of the node with these changes; None removes an attribute."""
        copy = self._copy(inputs or self.node.input, attributes)
        copy.output[:] = outputs or self.node.output
        copy.attribute.extend(
            helper.make_attribute(name, value) for name, value in attributes.items() if value is not None
        )
        self.nodes.append(copy)

    def _copy(self, inputs: Sequence[str], without: Collection[str]) -> NodeProto:
        copy = NodeProto()
        copy.CopyFrom(self.node)
        copy.input[:] = inputs
        del copy.attribute[:]
        copy.attribute.extend(a for a in self.node.attribute if a.name not in without)
        return copy

    def evaluate_reference(self, *inputs: Any, excluded_attribute: str) -> Any:
        """Evaluate the node in ONNX's reference evaluator, without `excluded_attribute`."""
        names = [name if value is not None else "" for name, value in zip("abcdefgh", inputs, strict=False)]
        copy = self._copy(names, (excluded_attribute,))
        # Of nodes with older forms, the rewriter writes the form of opset 13.
        opsets = [helper.make_opsetid("", max(self.opset, 13))]
        function = helper.make_function("", "one", [n for n in names if n], list(copy.output), [copy], opsets)
        feed = {name: value for name, value in zip(names, inputs, strict=True) if name}
        first: Sequence[Any] = ReferenceEvaluator(function).run(None, feed, {})  # type: ignore[assignment]
        return first[0]
