"""A graph's regions and the nodes outside of them, run in turn, compute what the graph computes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper

from mallorn.graphc.onnx.partition_graph import Partition, TypedGraph, partition
from tests.fixtures.onnx_network import onnx_network

node = helper.make_node
SHAPE = (2, 3)
OUTSIDE = "Neg"  # the operator that no region may hold


def types_of(model: ModelProto) -> dict[str, TypeProto]:
    """The types of all tensors."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    return {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}


def refusal(alone: ModelProto) -> str | None:
    """Negation stays outside."""
    return "no negation" if alone.graph.node[0].op_type == OUTSIDE else None


def run(model: ModelProto, values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of a model by name."""
    names = [value.name for value in model.graph.output]
    needed = {value.name: values[value.name] for value in model.graph.input}
    results = onnx.reference.ReferenceEvaluator(model).run(names, needed)
    return dict(zip(names, results, strict=True))


def run_in_turn(model: ModelProto, parts: Partition, values: dict[str, Any]) -> dict[str, Any]:
    """Run each part once, as soon as its inputs are known."""
    graph = TypedGraph(model, types_of(model))
    waiting = [*parts.regions, *(graph.model_of([each.node]) for each in parts.outside)]
    while waiting:
        ready = next(m for m in waiting if values.keys() >= {value.name for value in m.graph.input})
        waiting.remove(ready)
        onnx.checker.check_model(ready)
        values |= run(ready, values)
    return values


@st.composite
def graphs(draw: st.DrawFn) -> ModelProto:
    """A graph of up to twelve nodes, each of one or two tensors that stand before it."""
    names, nodes = ["x", "weight"], []
    for index in range(draw(st.integers(1, 12))):
        operator = draw(st.sampled_from([OUTSIDE, "Abs", "Add", "Mul"]))
        read = [draw(st.sampled_from(names)) for _ in range(1 if operator in (OUTSIDE, "Abs") else 2)]
        nodes.append(node(operator, read, [f"t{index}"]))
        names.append(f"t{index}")
    outputs = draw(st.lists(st.sampled_from(names[2:]), min_size=1, unique=True))
    weight = np.arange(6, dtype=np.float32).reshape(SHAPE) - 2
    return onnx_network(nodes, {"x": SHAPE}, dict.fromkeys(outputs, SHAPE), weight=weight)


@given(graphs())
def test_the_parts_in_turn_compute_what_the_graph_computes(model: ModelProto) -> None:
    parts = partition(model, types_of(model), refusal)
    x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(SHAPE)
    values = run_in_turn(model, parts, {"x": x})
    for name, expected in run(model, {"x": x}).items():
        np.testing.assert_array_equal(values[name], expected)
    inside = [each for region in parts.regions for each in region.graph.node]
    assert len(inside) + len(parts.outside) == len(model.graph.node)
    assert all(each.op_type != OUTSIDE for each in inside)


def in_parts(nodes: list[NodeProto], **shapes: Any) -> Partition:
    """The parts of a graph of `x` whose last tensor is its output."""
    model = onnx_network(nodes, {"x": SHAPE} | shapes, {nodes[-1].output[0]: None})
    return partition(model, types_of(model), refusal)


def test_a_node_in_the_middle_makes_two_regions() -> None:
    parts = in_parts(
        [
            node("Abs", ["x"], ["a"]),
            node("Add", ["a", "x"], ["b"]),
            node(OUTSIDE, ["b"], ["c"]),
            node("Mul", ["c", "a"], ["y"]),
        ]
    )
    assert [[each.op_type for each in region.graph.node] for region in parts.regions] == [
        ["Abs", "Add"],
        ["Mul"],
    ]
    assert [value.name for value in parts.regions[0].graph.output] == ["a", "b"]
    assert [(each.node.op_type, each.reason) for each in parts.outside] == [(OUTSIDE, "no negation")]


def test_nodes_beside_the_outside_join_the_region_before_it() -> None:
    parts = in_parts(
        [
            node("Abs", ["x"], ["a"]),
            node(OUTSIDE, ["a"], ["n"]),
            node("Add", ["a", "x"], ["b"]),
            node("Mul", ["b", "b"], ["d"]),
            node("Add", ["d", "n"], ["y"]),
        ]
    )
    assert [len(region.graph.node) for region in parts.regions] == [3, 1]


def test_what_has_no_size_before_the_model_runs_stays_outside() -> None:
    parts = in_parts([node("NonZero", ["x"], ["places"]), node("Abs", ["places"], ["y"])])
    assert parts.regions == ()
    assert [each.reason for each in parts.outside] == [
        "the size of its tensors is known only when the model runs"
    ] * 2


def test_texts_stay_outside() -> None:
    text = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    graph = helper.make_graph([node("Identity", ["x"], ["y"])], "g", [text], [text])
    graph.output[0].name = "y"
    model = helper.make_model(graph)
    (outside,) = partition(model, types_of(model), lambda _: None).outside
    assert outside.reason == "it takes or makes text"


def test_equal_nodes_are_asked_about_once() -> None:
    asked = []
    model = onnx_network(
        [node("Abs", ["x"], ["a"]), node("Abs", ["a"], ["b"]), node("Abs", ["b"], ["y"])],
        {"x": SHAPE},
        {"y": SHAPE},
    )
    partition(model, types_of(model), lambda alone: asked.append(alone))
    assert len(asked) == 1
