"""Replace an If by its branch if the condition is known, else by both; unroll counted loops."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, helper

from mallorn.graphc.onnx import sequences_to_tensors

KINDS = ("If", "Loop", "Scan")
# Loops may add at most so many nodes to a model.
UNROLLED = 10_000
_WHERE_TAKES_ALL_TYPES = _SCAN_WITHOUT_BATCH = 9  # the first opset


class Unknown(Exception):
    """Raised if a condition, body or loop length is unknown, or the unrolled loop too long."""


def unroll(walk: Any, node: NodeProto) -> bool:
    """Unroll an If, Loop or Scan; return False if its steps are unknown or too many."""
    mark = len(walk.kept)
    try:
        {"If": _branch, "Loop": _loop, "Scan": _scan}[node.op_type](walk, node)
    except Unknown:
        del walk.kept[mark:]
        return False
    return True


def inner_graphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        yield from attribute.graphs
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g


def names_read(node: NodeProto) -> set[str]:
    """Return every name that a node reads, also inside its graphs."""
    names = {*node.input}
    for graph in inner_graphs(node):
        names.update(value.name for value in graph.output)
        for inner in graph.node:
            names |= names_read(inner)
    return names


def _branch(walk: Any, node: NodeProto) -> None:
    condition = walk.value(node.input[0])
    if condition is None:
        _compute_both_branches(walk, node)
        return
    branch = "then_branch" if np.all(condition) else "else_branch"
    results = _inline_graph(walk, _graph_attribute(node, branch), node.output[0], [])
    _append_result_copies(walk, node.output, results)


def _compute_both_branches(walk: Any, node: NodeProto) -> None:
    """Compute both branches and select the results of one. If a branch cannot run with these
    input sizes, take the other. Raises Unknown if results differ in type or size, or if a
    branch divides integers, because a division by 0 stops the program."""
    mark, result = len(walk.kept), node.output[0]
    branches = []
    for name in ("then", "else"):
        start, impossible_count = len(walk.kept), walk.impossible_count
        names = _inline_graph(walk, _graph_attribute(node, f"{name}_branch"), f"{result}/{name}", [])
        if walk.impossible_count == impossible_count:
            branches.append(names)
        else:
            del walk.kept[start:]
            walk.impossible_count = impossible_count
    if not branches or any(walk.divides_integers(inner) for inner in walk.kept[mark:]):
        raise Unknown
    for results in zip(*branches, strict=True):
        types = {walk.typed_sizes(name) for name in results}
        if None in types or len(types) > 1 or walk.opset < _WHERE_TAKES_ALL_TYPES:
            raise Unknown
    if len(branches) == 1:
        _append_result_copies(walk, node.output, branches[0])
        return
    scalar = _add_known_constant(walk, node, "scalar", np.array([], "int64"))
    condition = f"{result}/condition"  # a file may have it as a vector with one element
    walk.node(helper.make_node("Reshape", [node.input[0], scalar], [condition]))
    for name, *choices in zip(node.output, *branches, strict=False):
        if name:
            walk.node(helper.make_node("Where", [condition, *choices], [name]))


def _loop(walk: Any, node: NodeProto) -> None:
    limit, condition, *carried = node.input
    limit_value = walk.value(limit) if limit else None
    if limit and limit_value is None:
        raise Unknown
    body, collected, step = _graph_attribute(node, "body"), [], 0
    condition = condition or _add_known_constant(walk, node, "goes_on", np.array(True))
    while limit_value is None or step < int(np.ravel(limit_value)[0]):
        goes_on = walk.value(condition)
        if goes_on is None:
            raise Unknown
        if not np.all(goes_on):
            break
        count = _add_known_constant(walk, node, f"step_{step}", np.array(step, "int64"))
        results = _inline_graph(walk, body, f"{node.output[0]}_{step}", [count, condition, *carried])
        condition, carried = results[0], results[1 : 1 + len(carried)]
        collected.append(results[1 + len(carried) :])
        step += 1
    _append_result_copies(walk, node.output, carried)
    _stack_step_results(walk, node.output[len(carried) :], collected, [0] * (len(node.output) - len(carried)))


def _scan(walk: Any, node: NodeProto) -> None:
    options = {attribute.name: attribute for attribute in node.attribute}

    def numbers(name: str, count: int) -> list[int]:
        return list(options[name].ints) if name in options else [0] * count

    count = options["num_scan_inputs"].i
    states, sequences = node.input[: len(node.input) - count], node.input[len(node.input) - count :]
    outputs = node.output[len(states) :]
    axes, backwards = numbers("scan_input_axes", count), numbers("scan_input_directions", count)
    steps = walk.size(sequences[0], axes[0])
    if steps is None or walk.opset < _SCAN_WITHOUT_BATCH:
        raise Unknown
    places = [
        _add_known_constant(walk, node, f"step_{step}", np.array(step, "int64")) for step in range(steps)
    ]
    collected, body = [], _graph_attribute(node, "body")
    for step in range(steps):
        slices = [f"{node.output[0]}_slice_{step}_{index}" for index in range(count)]
        for name, sequence, axis, is_reversed in zip(slices, sequences, axes, backwards, strict=True):
            place = places[-1 - step if is_reversed else step]
            walk.node(helper.make_node("Gather", [sequence, place], [name], axis=axis))
        results = _inline_graph(walk, body, f"{node.output[0]}_{step}", [*states, *slices])
        states = results[: len(states)]
        collected.append(results[len(states) :])
    _append_result_copies(walk, node.output, states)
    turned = numbers("scan_output_directions", len(outputs))
    rows = [
        [collected[-1 - step if is_reversed else step][index] for index, is_reversed in enumerate(turned)]
        for step in range(steps)
    ]
    _stack_step_results(walk, outputs, rows, numbers("scan_output_axes", len(outputs)))


def _graph_attribute(node: NodeProto, name: str) -> GraphProto:
    graphs: list[GraphProto] = [attribute.g for attribute in node.attribute if attribute.name == name]
    if not graphs:
        raise Unknown
    return graphs[0]


def _add_known_constant(walk: Any, node: NodeProto, name: str, value: Any) -> str:
    full_name = f"{node.output[0]}_{name}"
    walk.set_value(full_name, value)
    return full_name


def _inline_graph(walk: Any, graph: GraphProto, prefix: str, inputs: Sequence[str]) -> list[str]:
    """Process a graph's nodes with prefixed names; return its results. Raises Unknown."""
    walk.unrolled += 1 + len(graph.node)
    if walk.unrolled > UNROLLED:
        raise Unknown
    names = {name: f"{prefix}/{name}" for name in _defined_names(graph)}
    names |= {value.name: name for value, name in zip(graph.input, inputs, strict=True)}
    for tensor in graph.initializer:
        renamed = deepcopy(tensor)
        renamed.name = names[tensor.name]
        walk.constants([renamed])
    for node in graph.node:
        walk.node(_renamed(node, names, prefix))
    return [names.get(value.name, value.name) for value in graph.output]


def _renamed(node: NodeProto, names: Mapping[str, str], prefix: str) -> NodeProto:
    result = deepcopy(node)
    result.name = f"{prefix}/{node.name}" if node.name else ""
    result.input[:] = [names.get(name, name) for name in node.input]
    result.output[:] = [names.get(name, name) for name in node.output]
    for graph in inner_graphs(result):
        outer_names = {name: new for name, new in names.items() if name not in _defined_names(graph)}
        inner = [_renamed(inner_node, outer_names, prefix) for inner_node in graph.node]
        del graph.node[:]
        graph.node.extend(inner)
        for value in graph.output:
            value.name = outer_names.get(value.name, value.name)
    return result


def _defined_names(graph: GraphProto) -> set[str]:
    names = {value.name for value in (*graph.input, *graph.initializer)}
    return names | {name for node in graph.node for name in node.output if name}


def _append_result_copies(walk: Any, outputs: Sequence[str], results: Sequence[str]) -> None:
    """Append copies of results, with the names by which the outer graph reads them."""
    for name, result in zip(outputs, results, strict=False):
        if name:
            walk.node(helper.make_node("Identity", [result], [name]))


def _stack_step_results(
    walk: Any, outputs: Sequence[str], steps: Sequence[Sequence[str]], axes: Sequence[int]
) -> None:
    """Stack the results of all steps along a new axis. Raises Unknown without a step."""
    if outputs and not steps:
        raise Unknown
    for index, name in enumerate(outputs):
        rows = [f"{name}_row_{step}" for step in range(len(steps))]
        for row, results in zip(rows, steps, strict=True):
            sequences_to_tensors.unsqueeze(walk, results[index], axes[index], row)
        walk.node(helper.make_node("Concat", rows, [name], axis=axes[index]))
