"""Sort the nodes of a graph so that each comes after the nodes whose results it reads.

onnxruntime sorts them, so tools write files in which they are not sorted.
"""

from collections.abc import MutableSequence
from graphlib import CycleError, TopologicalSorter

from onnx import ModelProto, NodeProto

from mallorn.graphc.onnx.unroll_loops import inner_graphs, names_read


class Cycle(ValueError):
    """Raised if nodes read each other's results, so that no order exists."""


def sort_nodes(model: ModelProto) -> None:
    """Sort the nodes of a model's graphs and functions in place. Raises Cycle."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        _sort(nodes)


def _sort(nodes: MutableSequence[NodeProto]) -> None:
    for node in nodes:
        for graph in inner_graphs(node):
            _sort(graph.node)
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    # Names that an inner graph defines itself hide those of this graph.
    reads = [
        {producer[name] for name in names_read(node) - _defined_inside(node) if name in producer}
        for node in nodes
    ]
    if all(source < index for index, sources in enumerate(reads) for source in sources):
        return
    sorter = TopologicalSorter(dict(enumerate(reads)))
    try:
        sorter.prepare()
    except CycleError as error:
        names = [nodes[index].name or nodes[index].output[0] for index in error.args[1]]
        raise Cycle(f"these nodes read each other's results: {' <- '.join(names)}") from None
    order: list[int] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order += ready
        sorter.done(*ready)
    copies = [NodeProto() for _ in order]
    for copy, index in zip(copies, order, strict=True):
        copy.CopyFrom(nodes[index])
    del nodes[:]
    nodes.extend(copies)


def _defined_inside(node: NodeProto) -> set[str]:
    names: set[str] = set()
    for graph in inner_graphs(node):
        names.update(value.name for value in (*graph.input, *graph.initializer))
        for inner in graph.node:
            names |= {*inner.output} | _defined_inside(inner)
    return names
