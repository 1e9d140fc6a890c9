"""Write replacements of an ONNX node, with access to what is known about its inputs."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from graphc.onnx import fold_shapes, inline_functions, read_with_weights_on_disk


class Known:
    """What is known about a model's values; computed on first use."""

    def __init__(self, model: ModelProto) -> None:
        self._model = model

    @cached_property
    def types(self) -> Mapping[str, TypeProto]:
        """The types of the model's values by name."""
        return inline_functions.types_of(self._model)

    @cached_property
    def constants(self) -> Mapping[str, TensorProto]:
        """The model's constants by name."""
        return {tensor.name: tensor for tensor in self._model.graph.initializer}

    @property
    def opset(self) -> int:
        """The version of ONNX's operators."""
        return inline_functions.opset_of(self._model)


class NodeRewriter:
    """A node, and the nodes and constants that replace it."""

    def __init__(self, node: NodeProto, known: Known) -> None:
        self.node, self._known = node, known
        self._name = next(filter(None, node.output))  # unused outputs have no name
        self.constants: list[TensorProto] = []
        self.nodes: list[NodeProto] = []

    def attribute(self, name: str, default: Any) -> Any:
        match = next((each for each in self.node.attribute if each.name == name), None)
        return default if match is None else helper.get_attribute_value(match)

    def has(self, output: int) -> bool:
        return len(self.node.output) > output and bool(self.node.output[output])

    def kind(self, at: int) -> int:
        """Return an input's element type; 0 if it is unknown."""
        value_type = self._known.types.get(self.node.input[at])
        return 0 if value_type is None else value_type.tensor_type.elem_type

    @property
    def opset(self) -> int:
        return self._known.opset

    def given(self, at: int) -> bool:
        return len(self.node.input) > at and bool(self.node.input[at])

    def sizes(self, at: int) -> tuple[int, ...] | None:
        """Return an input's sizes; None unless all are known."""
        return fold_shapes.sizes_of(self._known.types.get(self.node.input[at]))

    def value(self, at: int) -> Any | None:
        """Return an input's array; None if it is not constant."""
        name = self.node.input[at] if len(self.node.input) > at else ""
        tensor = self._known.constants.get(name)
        return None if tensor is None else read_with_weights_on_disk.array(tensor)

    def constant(self, value: Any) -> str:
        name = f"{self._name}/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def whole(self, *numbers: int) -> str:
        """Add a constant of int64 numbers and return its name."""
        return self.constant(np.array(numbers, "int64"))

    def number(self, value: float, at: int = 0) -> str:
        """Add a scalar constant of the type of input `at` and return its name."""
        kind = self.kind(at) or TensorProto.FLOAT
        return self.constant(np.array(value, helper.tensor_dtype_to_np_dtype(kind)))

    def write(self, operator: str, *given: str, name: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its result."""
        result = name or f"{self._name}/step_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(given), [result], **attributes))
        return result

    def again(self, given: Sequence[str] = (), found: Sequence[str] = (), **attributes: Any) -> None:
        """Add a copy of the node with changes; an attribute of None is removed."""
        copy = NodeProto()
        copy.CopyFrom(self.node)
        copy.input[:] = given or self.node.input
        copy.output[:] = found or self.node.output
        del copy.attribute[:]
        copy.attribute.extend(each for each in self.node.attribute if each.name not in attributes)
        copy.attribute.extend(
            helper.make_attribute(name, value) for name, value in attributes.items() if value is not None
        )
        self.nodes.append(copy)

    def reference(self, *given: Any, without: str) -> Any:
        """Return the node's result in ONNX's reference evaluator, without an attribute."""
        names = [name if value is not None else "" for name, value in zip("abcdefgh", given, strict=False)]
        copy = NodeProto()
        copy.CopyFrom(self.node)
        copy.input[:] = names
        del copy.attribute[:]
        copy.attribute.extend(each for each in self.node.attribute if each.name != without)
        opsets = [helper.make_opsetid("", self.opset)]
        function = helper.make_function("", "one", [n for n in names if n], list(copy.output), [copy], opsets)
        feed = {name: value for name, value in zip(names, given, strict=True) if name}
        first: Sequence[Any] = ReferenceEvaluator(function).run(None, feed, {})  # type: ignore[assignment]
        return first[0]
