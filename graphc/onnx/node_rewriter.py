"""What is written in the place of a node of ONNX, and what is known there."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from graphc.onnx import fold_shapes, inline_functions, read_with_weights_on_disk


class Known:
    """Of a model; found when it is first asked for."""

    def __init__(self, model: ModelProto) -> None:
        self._model = model

    @cached_property
    def types(self) -> Mapping[str, TypeProto]:
        """Of its values, by name."""
        return inline_functions.types_of(self._model)

    @cached_property
    def constants(self) -> Mapping[str, TensorProto]:
        """By name."""
        return {tensor.name: tensor for tensor in self._model.graph.initializer}

    @property
    def opset(self) -> int:
        """The version of ONNX's operators."""
        return inline_functions.opset_of(self._model)


class NodeRewriter:
    """A node, and the means to write others in its place."""

    def __init__(self, node: NodeProto, known: Known) -> None:
        self.node, self._known = node, known
        self._name = next(filter(None, node.output))  # an output that nothing reads has none
        self.constants: list[TensorProto] = []
        self.nodes: list[NodeProto] = []

    def attribute(self, name: str, default: Any) -> Any:
        found = next((each for each in self.node.attribute if each.name == name), None)
        return default if found is None else helper.get_attribute_value(found)

    def has(self, output: int) -> bool:
        return len(self.node.output) > output and bool(self.node.output[output])

    def kind(self, at: int) -> int:
        """The type of an input's elements; 0 where it is not known."""
        known = self._known.types.get(self.node.input[at])
        return 0 if known is None else known.tensor_type.elem_type

    @property
    def opset(self) -> int:
        return self._known.opset

    def given(self, at: int) -> bool:
        return len(self.node.input) > at and bool(self.node.input[at])

    def sizes(self, at: int) -> tuple[int, ...] | None:
        """An input's sizes, where all are known."""
        return fold_shapes.sizes_of(self._known.types.get(self.node.input[at]))

    def value(self, at: int) -> Any | None:
        """An input's array, where it is a constant."""
        name = self.node.input[at] if len(self.node.input) > at else ""
        tensor = self._known.constants.get(name)
        return None if tensor is None else read_with_weights_on_disk.array(tensor)

    def constant(self, value: Any) -> str:
        name = f"{self._name}/constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def whole(self, *numbers: int) -> str:
        """Whole numbers as a constant."""
        return self.constant(np.array(numbers, "int64"))

    def number(self, value: float, at: int = 0) -> str:
        """A number of the type of an input's."""
        kind = self.kind(at) or TensorProto.FLOAT
        return self.constant(np.array(value, helper.tensor_dtype_to_np_dtype(kind)))

    def write(self, operator: str, *given: str, name: str = "", **attributes: Any) -> str:
        """A node more; the name of what it gives."""
        found = name or f"{self._name}/step_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(given), [found], **attributes))
        return found

    def again(self, given: Sequence[str] = (), found: Sequence[str] = (), **attributes: Any) -> None:
        """The node with other inputs, outputs and attributes; one of None is left out."""
        kept = NodeProto()
        kept.CopyFrom(self.node)
        kept.input[:] = given or self.node.input
        kept.output[:] = found or self.node.output
        del kept.attribute[:]
        kept.attribute.extend(each for each in self.node.attribute if each.name not in attributes)
        kept.attribute.extend(
            helper.make_attribute(name, value) for name, value in attributes.items() if value is not None
        )
        self.nodes.append(kept)

    def reference(self, *given: Any, without: str) -> Any:
        """What ONNX's own reference makes of arrays, without an attribute."""
        names = [name if value is not None else "" for name, value in zip("abcdefgh", given, strict=False)]
        one = NodeProto()
        one.CopyFrom(self.node)
        one.input[:] = names
        del one.attribute[:]
        one.attribute.extend(each for each in self.node.attribute if each.name != without)
        imports = [helper.make_opsetid("", self.opset)]
        function = helper.make_function("", "one", [n for n in names if n], list(one.output), [one], imports)
        fed = {name: value for name, value in zip(names, given, strict=True) if name}
        found: Sequence[Any] = ReferenceEvaluator(function).run(None, fed, {})  # type: ignore[assignment]
        return found[0]
