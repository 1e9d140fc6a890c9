"""Computes beforehand what an ONNX graph computes of constants and shapes: sizes, masks, branches, loops.

TVM's importer wants sizes as constants. Exporters write them as arithmetic on the shapes of tensors, which
are known once the inputs' shapes are. One walk over the nodes: what is known of a node's inputs tells what is
known of its outputs.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    defs,
    helper,
    numpy_helper,
    shape_inference,
)
from onnx.reference import ReferenceEvaluator

from graphc.onnx import (
    infer_contrib_shapes,
    inline_functions,
    read_with_weights_on_disk,
    sequences_to_tensors,
    unroll_loops,
)

# Larger results are left to be computed: a file must not grow by masks and repeated weights.
FOLDED_BYTES = 1 << 20
# Shape inference reads values of at most so many elements.
SIZES = 1 << 10
# Two runs differ, or a later pass reads from the operator that a number is quantised.
_KEPT = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
) | frozenset(("Dropout", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"))
# As many results as the values say, and never more than there are values and dimensions.
_COUNTED = frozenset(("NonZero", "Unique", "Compress"))


def fold(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelProto:
    """The model without what can be known from its constants and its inputs' shapes, and without dead nodes.

    Inputs and outputs remain, and their order. `shapes` bind free dimensions.
    """
    walk = Folding(model, shapes)
    walk.nodes(model.graph.node)
    return walk.model()


class Folding:
    """What is known so far, and the nodes that remain."""

    def __init__(self, model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
        self._model = model
        self.opset: int = inline_functions.opset_of(model)
        self._types: dict[str, TypeProto] = {}
        self._tensors: dict[str, TensorProto] = {}
        self._values: dict[str, Any] = {}
        self._kept: list[NodeProto] = []
        self.sequences: dict[str, list[str]] = {}  # of tensors, by their names
        self.unrolled = 0
        given = {value.name: value.type for value in model.graph.input}
        bound = {name: shape for name, shape in shapes.items() if name in given}
        self._types |= given
        for name, shape in bound.items():
            kind = given[name].tensor_type.elem_type
            self._types[name] = helper.make_tensor_type_proto(kind, shape)
        self.constants(model.graph.initializer)
        # What a file says of its values holds for the shapes that it declares.
        redone = any(_other_sizes(given[name], shape) for name, shape in bound.items())
        declared = () if redone else model.graph.value_info
        self._declared = {value.name: value.type for value in declared if sizes_of(value.type) is not None}

    def constants(self, tensors: Iterable[TensorProto]) -> None:
        """Know these by their names."""
        for tensor in tensors:
            self._tensors[tensor.name] = tensor
            self._types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)

    def nodes(self, nodes: Iterable[NodeProto]) -> None:
        """Go through nodes in their order."""
        for node in nodes:
            self.node(node)

    def node(self, node: NodeProto) -> None:
        """Know what the node computes, or keep it."""
        if node.op_type in unroll_loops.KINDS and unroll_loops.unroll(self, node):
            return
        if sequences_to_tensors.follow(self, node):
            return
        self._construct(unroll_loops.reads(node))
        types = self._infer(node)
        found = self._compute(node, types)
        if found is None:
            self._types.update({name: kind for name, kind in types.items() if name})
            self._kept.append(node)
        else:
            for name, value in zip(node.output, found, strict=False):
                self.know(name, value)

    def _construct(self, names: Iterable[str]) -> None:
        """Make sequences that are taken as they are."""
        for name in [name for name in names if name in self.sequences]:
            self._kept.append(sequences_to_tensors.construct(name, self.sequences.pop(name)))

    def know(self, name: str, value: Any) -> None:
        """This name is of this value."""
        self.constants([numpy_helper.from_array(np.asarray(value), name)])
        self._values[name] = np.asarray(value)

    def value(self, name: str) -> Any | None:
        """The array of a name, where it is a constant of no great size."""
        if name not in self._values and name in self._tensors:
            tensor = self._tensors[name]
            if _bytes_of(self._types[name]) <= FOLDED_BYTES and tensor.data_type != TensorProto.STRING:
                self._values[name] = read_with_weights_on_disk.array(tensor)
        return self._values.get(name)

    def size(self, name: str, axis: int) -> int | None:
        """The extent of a tensor along an axis, where it is known."""
        found = sizes_of(self._types.get(name))
        return found[axis] if found is not None and -len(found) <= axis < len(found) else None

    def mark(self) -> int:
        """A place to come back to."""
        return len(self._kept)

    def back(self, mark: int) -> None:
        """Forget the nodes that were kept since."""
        del self._kept[mark:]

    def model(self) -> ModelProto:
        """The model of what was kept and is needed."""
        needed = {value.name for value in self._model.graph.output}
        self._construct(needed)
        nodes = []
        for node in reversed(self._kept):
            if not needed.isdisjoint(node.output):
                nodes.append(node)
                needed.update(unroll_loops.reads(node))
        result: ModelProto = _without(self._model, "graph")
        graph = _without(self._model.graph, *_MADE_ANEW)
        graph.node.extend(reversed(nodes))
        graph.initializer.extend(tensor for name, tensor in self._tensors.items() if name in needed)
        graph.value_info.extend(self._known_sizes(nodes))
        result.graph.CopyFrom(graph)
        result.ir_version = max(result.ir_version, 4)  # before, every constant was an input, too
        return result

    def _known_sizes(self, nodes: Iterable[NodeProto]) -> Iterable[ValueInfoProto]:
        """What ONNX's inference does not find out again: sizes by those that inputs are bound to."""
        results = {value.name for value in self._model.graph.output}
        for name in (name for node in nodes for name in node.output):
            kind = self._types.get(name)
            if name not in results and sizes_of(kind) is not None:
                yield ValueInfoProto(name=name, type=kind)

    def _infer(self, node: NodeProto) -> dict[str, TypeProto]:
        declared = {name: self._declared[name] for name in node.output if name in self._declared}
        if node.domain not in inline_functions.DOMAINS:
            inferred: dict[str, TypeProto] = infer_contrib_shapes.types(node, [*map(self._given, node.input)])
            return inferred | declared
        if any(name not in self._types for name in node.input if name):
            return declared
        data = {name: self._tensors[name] for name in node.input if self._is_small(name)}
        types = {name: self._types[name] for name in node.input if name}
        imports = [helper.make_opsetid("", self.opset)]
        try:
            schema = defs.get_schema(node.op_type, self.opset, "")
            found = shape_inference.infer_node_outputs(schema, node, types, data, None, imports)
        except onnx.checker.ValidationError as error:
            if "inconsistent type" not in str(error):
                return declared
            refusal = ValueError(str(error))
            refusal.add_note(f"{node.op_type} (node {node.name!r})" if node.name else node.op_type)
            raise refusal from None
        except Exception:  # ONNX has many classes for a node that is not as it should be; TVM may know better
            return declared
        return {name: kind for name, kind in found.items() if sizes_of(kind) is not None} | {
            name: kind for name, kind in declared.items() if sizes_of(found.get(name)) is None
        }

    def _given(self, name: str) -> tuple[int, tuple[int, ...]] | None:
        """The type of a name's elements and its sizes, where both are known."""
        kind = self._types.get(name)
        sizes = sizes_of(kind)
        return None if kind is None or sizes is None else (kind.tensor_type.elem_type, sizes)

    def _is_small(self, name: str) -> bool:
        sizes = sizes_of(self._types[name]) if name in self._tensors else None
        return sizes is not None and prod(sizes) <= SIZES

    def _compute(self, node: NodeProto, types: Mapping[str, TypeProto]) -> list[Any] | None:
        """What a node of constants, or of nothing but a shape, computes."""
        if (
            node.domain not in inline_functions.DOMAINS
            or node.op_type in _KEPT
            or any(unroll_loops.graphs(node))
        ):
            return None
        if node.op_type in ("Shape", "Size"):
            sizes = sizes_of(self._types.get(node.input[0]))
            if sizes is None:
                return None
            if node.op_type == "Size":
                return [np.array(prod(sizes), "int64")]
            ends = {attribute.name: attribute.i for attribute in node.attribute}
            return [np.array(sizes[ends.get("start", 0) : ends.get("end", len(sizes))], "int64")]
        wanted = [name for name in node.output if name]
        total = sum(_bytes_of(types.get(name)) for name in wanted)
        given = {name: self.value(name) for name in node.input if name}
        if any(value is None for value in given.values()):
            return None
        if total > FOLDED_BYTES and not (node.op_type in _COUNTED and len(given) == 1):
            return None
        found = self._evaluate(node, given)
        if found is None or any(not isinstance(value, np.ndarray | np.generic) for value in found):
            return None
        return found if all(np.asarray(value).dtype.kind not in "OSU" for value in found) else None

    def _evaluate(self, node: NodeProto, given: Mapping[str, Any]) -> list[Any] | None:
        one = helper.make_function(
            "", "one", list(given), list(node.output), [node], [helper.make_opsetid("", self.opset)]
        )
        try:
            with np.errstate(all="ignore"):
                return list(ReferenceEvaluator(one).run(None, dict(given), {}))
        except Exception:  # whatever the reference has no answer to is computed when the model runs
            return None


_MADE_ANEW = ("node", "initializer", "value_info")


def sizes_of(kind: TypeProto | None) -> tuple[int, ...] | None:
    """The sizes of a tensor's type, where all are known."""
    if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)


def _bytes_of(kind: TypeProto | None) -> float:
    sizes = sizes_of(kind)
    if sizes is None or kind is None or not kind.tensor_type.elem_type:
        return float("inf")
    return prod(sizes) * helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type).itemsize


def _other_sizes(kind: TypeProto, shape: Sequence[int]) -> bool:
    dims = kind.tensor_type.shape.dim
    return any(dim.dim_value not in (0, size) for dim, size in zip(dims, shape, strict=False))


def _without(message: Any, *names: str) -> Any:
    """A copy of a message that lacks some fields, whose content is never copied."""
    result = type(message)()
    for field, value in message.ListFields():
        if field.name in names:
            continue
        if isinstance(value, int | float | str | bytes):
            setattr(result, field.name, value)
        elif hasattr(value, "CopyFrom"):
            getattr(result, field.name).CopyFrom(value)
        else:
            getattr(result, field.name).extend(value)
    return result
