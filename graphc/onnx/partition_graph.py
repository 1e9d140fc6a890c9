"""Divide an ONNX graph into regions, which are compiled, and nodes that stay in onnxruntime."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, numpy_helper, save

from mallorn.graphc.onnx import inline_functions, read_with_weights_on_disk
from mallorn.graphc.onnx.fold_shapes import SIZES, fold_with_types, sizes_of
from mallorn.graphc.onnx.unroll_loops import names_read

UNSIZED = "the size of its tensors is known only when the model runs"
RESULT = 0  # who reads the graph's outputs
TEXT = "it takes or makes text"


@dataclass(frozen=True, slots=True)
class OutsideNode:
    """A node that stays in onnxruntime, and why."""

    node: NodeProto
    reason: str


@dataclass(frozen=True, slots=True)
class Partition:
    """A graph's regions, each a model whose inputs and outputs are tensors of the graph, and the rest."""

    regions: tuple[ModelProto, ...]
    outside: tuple[OutsideNode, ...]


def partition(
    model: ModelProto, types: Mapping[str, TypeProto], refusal: Callable[[ModelProto], str | None]
) -> Partition:
    """Divide a graph whose nodes are in topological order and whose tensors have these types.

    `refusal` says why a model of one node cannot be compiled, or returns None; it is asked once
    for nodes of the same operator, attributes, types and small constants. No path leads from a
    region to outside and back, so that each region runs in one call.
    """
    graph = TypedGraph(model, types)
    reasons: dict[bytes, str | None] = {}
    outside: dict[int, str] = {}
    for position, node in enumerate(model.graph.node):
        if (reason := graph.unsized(node)) is None:
            alone = graph.model_of([node])
            key = _form(alone)
            if key not in reasons:
                reasons[key] = refusal(alone)
            reason = reasons[key]
        if reason is not None:
            outside[position] = reason
    nodes = model.graph.node
    depths = _depths(nodes, outside)
    by_depth: dict[int, list[NodeProto]] = {}
    for position, node in enumerate(nodes):
        if position not in outside:
            by_depth.setdefault(depths[position], []).append(node)
    return Partition(
        regions=tuple(graph.model_of(members) for _, members in sorted(by_depth.items())),
        outside=tuple(OutsideNode(nodes[position], reason) for position, reason in outside.items()),
    )


def cut(
    model: ModelProto,
    shapes: Mapping[str, Sequence[int]],
    inputs: Collection[str],
    outputs: Collection[str],
) -> ModelProto:
    """Return the region of a model with these input shapes that lies between these tensors.
    Raises ValueError if the model has none."""
    folded, types = fold_with_types(inline_functions.inline(model), shapes)
    between, needed = [], set(outputs).difference(inputs)
    for node in reversed(folded.graph.node):
        if not needed.isdisjoint(node.output):
            between.append(node)
            needed |= names_read(node).difference(inputs)
    region = TypedGraph(folded, types).model_of(between[::-1])
    ends = [[value.name for value in values] for values in (region.graph.input, region.graph.output)]
    if ends != [list(inputs), list(outputs)]:
        raise ValueError("it has no part between the tensors that the schedules name")
    return region


def write_region(region: ModelProto, path: str) -> None:
    """Write a region as an ONNX file that holds its weights."""
    read_with_weights_on_disk.embed_weights(region)
    save(region, path)


def work_of(region: ModelProto) -> float:
    """Estimate the operations of a region: for weights, those of a product of matrices of these sizes."""
    sizes = {
        value.name: float(prod(sizes_of(value.type) or (0,)))
        for value in (*region.graph.input, *region.graph.value_info, *region.graph.output)
    }
    weights = {tensor.name: float(prod(tensor.dims)) for tensor in region.graph.initializer}
    total = 0.0
    for node in region.graph.node:
        data = max((sizes.get(name, 0.0) for name in (*node.input, *node.output)), default=0.0)
        weight = max((weights[name] for name in node.input if name in weights), default=1.0)
        result = max((sizes.get(name, 0.0) for name in node.output), default=0.0)
        total += max(data, (data * weight * result) ** 0.5)
    return total


def _depths(nodes: Sequence[NodeProto], outside: Mapping[int, str]) -> list[int]:
    """Return for each node how often the longest way to it enters or leaves the outside.

    Nodes of one depth and kind are a region: a way that leaves it enters a greater depth.
    """
    producers: dict[str, int] = {}
    depths: list[int] = []
    for position, node in enumerate(nodes):
        is_outside = position in outside
        before = {producers[name] for name in names_read(node) if name in producers}
        depths.append(max((depths[p] + ((p in outside) != is_outside) for p in before), default=0))
        producers.update(dict.fromkeys(filter(None, node.output), position))
    return depths


class TypedGraph:
    """A graph with the types of all its tensors, of which parts become models."""

    def __init__(self, model: ModelProto, types: Mapping[str, TypeProto]) -> None:
        self._model = model
        self._types = types
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._nodes = list(model.graph.node)  # keeps their ids
        self._readers: dict[str, set[int]] = {value.name: {RESULT} for value in model.graph.output}
        for node in self._nodes:
            for name in names_read(node):
                self._readers.setdefault(name, set()).add(id(node))

    def unsized(self, node: NodeProto) -> str | None:
        """Return why a tensor of the node cannot enter or leave compiled code, or None."""
        for name in (*node.input, *node.output):
            if name and name not in self._constants:
                kind = self._types.get(name)
                if sizes_of(kind) is None:
                    return UNSIZED
                if kind is not None and kind.tensor_type.elem_type == TensorProto.STRING:
                    return TEXT
        return None

    def model_of(self, nodes: Sequence[NodeProto]) -> ModelProto:
        """Return a model of these nodes; its inputs and outputs are what they share with other nodes."""
        made = [name for node in nodes for name in node.output if name]
        read = dict.fromkeys(name for node in nodes for name in sorted(names_read(node)) if name)
        members = {id(node) for node in nodes}
        outputs = [name for name in made if not self._readers.get(name, members) <= members] or made
        given = self._types.keys() - self._constants.keys() - {*made}
        inputs = [name for name in read if name in given]
        result = ModelProto(ir_version=self._model.ir_version, functions=self._model.functions)
        result.opset_import.extend(self._model.opset_import)
        result.graph.CopyFrom(
            GraphProto(
                name=self._model.graph.name or "region",
                node=nodes,
                input=self._values(inputs),
                output=self._values(outputs),
                initializer=[self._constants[name] for name in read if name in self._constants],
                value_info=self._values(sorted({*made}.difference(outputs))),
            )
        )
        return result

    def _values(self, names: Iterable[str]) -> list[ValueInfoProto]:
        return [ValueInfoProto(name=name, type=self._types[name]) for name in names if name in self._types]


def _form(alone: ModelProto) -> bytes:
    """Return what decides whether a model of one node can be compiled, without its names and weights."""
    (node,) = alone.graph.node
    kinds = {value.name: value.type.SerializeToString() for value in alone.graph.input}
    parts = [node.domain.encode(), node.op_type.encode()]
    parts += sorted(attribute.SerializeToString() for attribute in node.attribute)
    constants = {tensor.name: tensor for tensor in alone.graph.initializer}
    for name in node.input:
        if (tensor := constants.get(name)) is None:
            parts.append(kinds.get(name, b""))
        elif prod(tensor.dims) <= SIZES and tensor.data_location != TensorProto.EXTERNAL:
            parts.append(numpy_helper.to_array(tensor).tobytes())
        else:
            parts.append(repr((tensor.data_type, *tensor.dims)).encode())
    return b"|".join(parts)
