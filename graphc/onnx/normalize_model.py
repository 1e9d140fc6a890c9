"""Bring a model into one form: nodes in order, and one name for ONNX's own domain.

onnxruntime does the same when it loads a file, so tools write files that need it.
"""

from collections.abc import Iterable, MutableSequence
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from typing import Any

from onnx import ModelProto, NodeProto

from mallorn.graphc.onnx.unroll_loops import inner_graphs, names_read

_LONG_DOMAIN = "ai.onnx"  # another name for ONNX's own domain, which has the name ""


class Cycle(ValueError):
    """Raised if nodes read each other's results, so that no order exists."""


def normalize(model: ModelProto) -> None:
    """Sort the nodes of a model's graphs and functions in place, give ONNX's own domain its
    short name, and import other domains that nodes have. Raises Cycle."""
    for part in (model.graph, *model.functions):
        _sort(part.node)
    for part in (model, *model.functions):
        _shorten_domains(part.opset_import)
    imported = {"", *(entry.domain for entry in model.opset_import)}
    for domain in sorted({node.domain for node in model.graph.node} - imported):
        model.opset_import.add(domain=domain, version=1)


def _shorten_domains(entries: Iterable[Any]) -> None:
    for entry in entries:
        if entry.domain == _LONG_DOMAIN:
            entry.domain = ""


def _sort(nodes: MutableSequence[NodeProto]) -> None:
    """Sort nodes, also those of inner graphs: each comes after those whose results it reads."""
    _shorten_domains(nodes)
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
    copies = [deepcopy(nodes[index]) for index in order]
    del nodes[:]
    nodes.extend(copies)


def _defined_inside(node: NodeProto) -> set[str]:
    names: set[str] = set()
    for graph in inner_graphs(node):
        names.update(value.name for value in (*graph.input, *graph.initializer))
        for inner in graph.node:
            names |= {*inner.output} | _defined_inside(inner)
    return names
