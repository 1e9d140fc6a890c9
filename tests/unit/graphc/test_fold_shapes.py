"""What a graph computes of constants and shapes is known before TVM sees it, and its results are the same."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from mallorn.core.errors import InvalidModel
from mallorn.graphc.export.compile_network import simplify_onnx_model
from mallorn.graphc.onnx import fold_shapes, unroll_loops
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from tests.fixtures.onnx_network import onnx_network
from tests.unit.graphc.networks import run, run_onnxruntime

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node


def info(name: str, shape: Any = None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[NodeProto],
    outputs: list[str] | None = None,
    shape: Any = (2, 3, 4),
    weights: dict[str, Any] | None = None,
    functions: Any = (),
    opset: int = 21,
) -> ModelProto:
    """A model of x, and of the weights."""
    results = dict.fromkeys(outputs or ["y"])
    return onnx_network(nodes, {"x": shape}, results, opset=opset, functions=functions, **weights or {})


def simple(given: ModelProto, shapes: dict[str, list[int]] | None = None) -> ModelProto:
    """The simplified model, which computes what the given one does and takes and gives the same."""
    result: ModelProto = simplify_onnx_model(given, shapes or {})
    size = (shapes or {}).get("x") or [
        dim.dim_value for dim in given.graph.input[0].type.tensor_type.shape.dim
    ]
    x = np.random.default_rng(0).standard_normal(size).astype("float32")
    expected, found = (run_onnxruntime(one, x) for one in (given, result))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert list(result.graph.input) == list(given.graph.input)
    assert list(result.graph.output) == list(given.graph.output)
    return result


def operators(given: ModelProto) -> list[str]:
    return [one.op_type for one in given.graph.node]


def flattening(*dims: NodeProto) -> list[NodeProto]:
    """A reshape by what is computed from the shape of x."""
    return [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "axis"], ["first"]),
        node("Concat", ["first", "rest"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["y"]),
    ]


SIZES = {"zero": np.int64(0), "axis": np.array([0]), "rest": np.array([-1])}


def test_a_computed_shape_becomes_a_constant() -> None:
    found = simple(model(flattening(), weights=SIZES))
    assert operators(found) == ["Reshape"]
    (to,) = found.graph.initializer
    assert numpy_helper.to_array(to).tolist() == [2, -1]


def test_a_free_dimension_is_known_once_it_is_bound() -> None:
    given = model(flattening(), shape=("batch", 3, 4), weights=SIZES)
    assert operators(simple(given, {"x": [5, 3, 4]})) == ["Reshape"]
    assert "Shape" in operators(simplify_onnx_model(given, {}))


def test_sizes_behind_computed_shapes_are_known_too() -> None:
    nodes = [*flattening()[:-1], node("Reshape", ["x", "to"], ["flat"]), node("Shape", ["flat"], ["n2"])]
    nodes.append(node("Cast", ["n2"], ["y"], to=FLOAT))
    found = simple(model(nodes, weights=SIZES))
    assert operators(found) == []
    assert numpy_helper.to_array(found.graph.initializer[0]).tolist() == [2, 12]


def test_what_nobody_reads_is_dropped() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Sin", ["x"], ["unused"]), node("Cos", ["unused"], ["also"])]
    found = simple(model(nodes, weights={"w": np.ones(3, "float32")}))
    assert operators(found) == ["Relu"]
    assert not found.graph.initializer


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"])
def test_constants_of_every_type_fold(kind: str) -> None:
    value = numpy_helper.from_array(np.ones((2, 2), kind))
    nodes = [
        node("Constant", [], ["c"], value=value),
        node("Transpose", ["c"], ["t"]),
        node("Cast", ["t"], ["f"], to=FLOAT),
        node("ReduceSum", ["f"], ["z"], keepdims=0),
        node("Add", ["x", "z"], ["y"]),
    ]
    assert operators(simple(model(nodes))) == ["Add"]


def test_a_file_does_not_grow_by_what_is_folded() -> None:
    size = np.array([1 << 10, 1 << 10])
    nodes = [
        node("ConstantOfShape", ["n"], ["large"]),
        node("ReduceSum", ["large"], ["z"], keepdims=0),
        node("Add", ["x", "z"], ["y"]),
    ]
    given = model(nodes, weights={"n": size})
    found = simple(given)
    assert "ConstantOfShape" in operators(found)
    assert found.ByteSize() < given.ByteSize() + 1000


@pytest.mark.parametrize(
    "kept",
    [
        node("RandomNormal", [], ["z"], shape=[4]),
        node("DequantizeLinear", ["q", "scale", "point"], ["z"]),
    ],
)
def test_what_is_random_or_quantised_is_kept(kept: NodeProto) -> None:
    weights = {"q": np.ones(4, "int8"), "scale": np.float32(0.5), "point": np.int8(0)}
    given = model([kept, node("Add", ["x", "z"], ["y"])], weights=weights)
    assert operators(simplify_onnx_model(given, {})) == [kept.op_type, "Add"]


def choice(condition: NodeProto) -> list[NodeProto]:
    """Relu where the condition is true, else Sin of a constant of the branch; both write the same name."""
    one = numpy_helper.from_array(np.ones(1, "float32"), "k")
    then = helper.make_graph([node("Relu", ["x"], ["r"])], "t", [], [info("r")])
    other = helper.make_graph([node("Add", ["x", "k"], ["r"])], "e", [], [info("r")], [one])
    return [condition, node("If", ["c"], ["y"], then_branch=then, else_branch=other)]


@pytest.mark.parametrize(("size", "taken"), [(24, "Relu"), (23, "Add")])
def test_the_branch_of_a_known_condition_is_taken(size: int, taken: str) -> None:
    nodes = [node("Size", ["x"], ["n"]), *choice(node("Equal", ["n", "of"], ["c"]))]
    assert operators(simple(model(nodes, weights={"of": np.int64(size)})))[0] == taken


def loop(steps: str, *, going: str = "") -> NodeProto:
    """Adds the number of the step to x, again and again; gives the last and all."""
    body = helper.make_graph(
        [
            node("Cast", ["i"], ["f"], to=FLOAT),
            node("Add", ["at", "f"], ["next"]),
            node("Less", ["i", "last"], ["more"]),
            node("ReduceSum", ["next"], ["total"], keepdims=0),
        ],
        "body",
        [info("i", [], INT64), info("on", [], BOOL), info("at")],
        [info("more" if going else "on", [], BOOL), info("next"), info("total")],
    )
    return node("Loop", [steps, going, "x"], ["y", "all"], body=body)


@pytest.mark.parametrize(("steps", "going", "adds"), [("three", "", 3), ("three", "yes", 2), ("", "yes", 2)])
def test_a_loop_of_known_length_is_written_out(steps: str, going: str, adds: int) -> None:
    weights = {"three": np.int64(3), "yes": np.bool_(True), "last": np.int64(1)}
    found = simple(model([loop(steps, going=going)], ["y", "all"], weights=weights))
    assert operators(found).count("Add") == adds
    assert "Loop" not in operators(found)


def test_a_loop_within_a_branch_within_a_loop_is_written_out() -> None:
    weights = {"three": np.int64(3), "last": np.int64(1), "yes": np.bool_(True)}
    inner = helper.make_graph([loop("three")], "t", [], [info("y")])
    other = helper.make_graph([node("Neg", ["x"], ["y"])], "e", [], [info("y")])
    picked = node("If", ["yes"], ["z"], then_branch=inner, else_branch=other)
    body = helper.make_graph(
        [node("Identity", ["on"], ["still"]), picked, node("Add", ["at", "z"], ["next"])],
        "body",
        [info("i", [], INT64), info("on", [], BOOL), info("at")],
        [info("still", [], BOOL), info("next")],
    )
    found = simple(model([node("Loop", ["three", "", "x"], ["y"], body=body)], weights=weights))
    assert set(operators(found)) <= {"Add", "Identity"}
    assert operators(found).count("Add") == 3 * (3 + 1)


@pytest.mark.parametrize("directions", [{}, {"scan_input_directions": [1]}, {"scan_output_directions": [1]}])
def test_a_scan_is_written_out(directions: dict[str, list[int]]) -> None:
    body = helper.make_graph(
        [node("Add", ["state", "row"], ["next"]), node("Relu", ["next"], ["seen"])],
        "body",
        [info("state"), info("row")],
        [info("next"), info("seen")],
    )
    start = {"start": np.zeros((2, 4), "float32")}
    scan = node(
        "Scan",
        ["start", "x"],
        ["y", "all"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
        **directions,
    )
    found = simple(model([scan], ["y", "all"], weights=start))
    assert operators(found).count("Relu") == 3
    assert "Scan" not in operators(found)


def test_a_loop_that_is_too_long_or_ends_by_the_data_is_refused_by_its_name(tmp_path: Any) -> None:
    long = model([loop("many")], ["y", "all"], weights={"many": np.int64(1 << 40), "last": np.int64(1)})
    rank = node("ReduceMin", ["x"], ["least"], keepdims=0)
    count = node("Cast", ["least"], ["steps"], to=INT64)
    unknown = model([rank, count, loop("steps")], ["y", "all"], weights={"last": np.int64(1)})
    for given in (long, unknown):
        path = tmp_path / "model.onnx"
        onnx.save(given, str(path))
        with pytest.raises(InvalidModel, match="cannot import these operators: Loop") as caught:
            load_network(path)
        assert f"{unroll_loops.UNROLLED:,} nodes" in caught.value.hint


def test_functions_of_the_file_are_written_out_where_they_are_called() -> None:
    opsets = [helper.make_opsetid("", 21)]
    half = helper.make_function(
        "own",
        "Half",
        ["a"],
        ["b"],
        [node("Constant", [], ["h"], value_float=0.5), node("Mul", ["a", "h"], ["b"])],
        opsets,
    )
    twice = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [node("Half", ["a"], ["t"], domain="own"), node("Half", ["t"], ["b"], domain="own")],
        [*opsets, helper.make_opsetid("own", 1)],
    )
    found = simple(model([node("Twice", ["x"], ["y"], domain="own")], functions=[half, twice]))
    assert operators(found) == ["Mul", "Mul"]
    assert not found.functions


def test_an_operator_that_tvm_lacks_is_written_out_where_onnx_defines_it_by_others() -> None:
    found = simple(model([node("Swish", ["x"], ["y"], alpha=1.0)], opset=24))
    assert "Swish" not in operators(found)
    assert "Sigmoid" in operators(found)


def test_many_nodes_are_walked_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = [node("Add", [f"v{at}" if at else "x", "one"], [f"v{at + 1}"]) for at in range(300)]
    seen = []
    inferred = fold_shapes.Folding.infer_types

    def count(walk: fold_shapes.Folding, one: NodeProto) -> Any:
        seen.append(one.name)
        return inferred(walk, one)

    monkeypatch.setattr(fold_shapes.Folding, "infer_types", count)
    simplify_onnx_model(model(chain, ["v300"], weights={"one": np.float32(1)}), {})
    assert len(seen) == 300


def test_recomputed_shapes_are_imported_with_onnx_numbers(tmp_path: Any) -> None:
    onnx.save(model(flattening(), weights=SIZES), str(tmp_path / "model.onnx"))
    assert load_network(tmp_path / "model.onnx").outputs[0].shape == [2, 12]


def convolving_branches(condition_shape: tuple[int, ...], other: NodeProto | None = None) -> ModelProto:
    """An If on an input, with a convolution in one branch, and `other` or a convolution in the other."""
    rng = np.random.default_rng(4)
    weights = {name: rng.standard_normal((3, 3, 3)).astype("float32") for name in "vw"}
    then = helper.make_graph([node("Conv", ["x", "v"], ["t"], pads=[1, 1])], "t", [], [info("t")])
    last = other or node("Conv", ["x", "w"], ["e"], pads=[1, 1])
    otherwise = helper.make_graph([last], "e", [], [info("e")])
    choose = node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)
    inputs = {"x": [2, 3, 4], "c": np.zeros(condition_shape, bool)}
    return onnx_network([choose], inputs, {"y": [2, 3, 4]}, **weights)


@pytest.mark.parametrize("condition", [np.array(True), np.array(False), np.array([False])], ids=str)
def test_branches_of_equal_sizes_are_both_computed(tmp_path: Path, condition: Any) -> None:
    onnx.save(given := convolving_branches(condition.shape), path := tmp_path / "m.onnx")
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
    wanted = run_onnxruntime(given, x, condition)[0]
    np.testing.assert_allclose(run(load_network(path).mod, x, condition), wanted, rtol=1e-4, atol=1e-5)


def test_a_branch_that_cannot_run_with_the_input_sizes_is_never_taken() -> None:
    given = convolving_branches((), node("Squeeze", ["x"], ["e"], axes=[1]))
    given.opset_import[0].version = 12
    assert operators(simplify_onnx_model(given, {})) == ["Conv", "Identity"]


def test_an_inner_branch_that_cannot_run_leaves_its_outer_branch_possible() -> None:
    given = convolving_branches((), node("Squeeze", ["x"], ["e"], axes=[1]))
    inner = given.graph.node[0]
    inner.output[0] = "z"
    then = helper.make_graph([inner], "t", [], [info("z")])
    other = helper.make_graph([node("Neg", ["x"], ["n"])], "e", [], [info("n")])
    given.graph.node[0].CopyFrom(node("If", ["c"], ["y"], then_branch=then, else_branch=other))
    given.opset_import[0].version = 12
    assert {"Conv", "Neg", "Where"} <= set(operators(simplify_onnx_model(given, {})))


def test_a_branch_that_divides_integers_is_not_computed_beside_the_other() -> None:
    then = helper.make_graph([node("Div", ["x", "d"], ["t"])], "t", [], [info("t", None, INT64)])
    other = helper.make_graph([node("Neg", ["x"], ["e"])], "e", [], [info("e", None, INT64)])
    choose = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    numbers = np.zeros(3, "int64")
    inputs = {"x": numbers, "d": numbers, "c": np.array(True)}
    assert "If" in operators(simplify_onnx_model(onnx_network([choose], inputs, {"y": numbers}), {}))


def test_weights_that_no_node_needs_are_no_inputs_though_old_files_list_them_as_such() -> None:
    given = model([node("Relu", ["x"], ["y"])], weights={"w": np.ones(3, "float32")})
    given.graph.input.append(info("w", [3]))
    given.ir_version = 3
    result = fold_shapes.fold(given, {})
    assert [value.name for value in result.graph.input] == ["x"]
    assert list(result.graph.initializer) == []


@pytest.mark.parametrize(
    ("version", "table"),
    [(1, {"classes_strings": ["a", "b"]}), (2, {"keys_strings": ["a", "b"], "values_int64s": [1, 2]})],
)
def test_sizes_behind_operators_of_classical_models_are_known(version: int, table: dict[str, Any]) -> None:
    lookup = node("LabelEncoder", ["x"], ["n"], domain="ai.onnx.ml", **table)
    given = onnx_network([lookup, node("Cast", ["n"], ["y"], to=FLOAT)], {"x": (2, 8)}, {"y": None})
    given.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    given.opset_import.append(helper.make_opsetid("ai.onnx.ml", version))
    _, types = fold_shapes.fold_with_types(given, {})
    assert fold_shapes.sizes_of(types["y"]) == (2, 8)


@pytest.mark.parametrize(
    ("fused", "given", "weight", "sizes"),
    [
        (node("FusedMatMul", ["x", "w"], ["y"]), (3, 4), (4, 5), (3, 5)),
        (node("FusedMatMul", ["x", "w"], ["y"]), (4,), (4, 5), (5,)),
        (node("FusedMatMul", ["x", "w"], ["y"], transA=1, transB=1), (2, 4, 3), (2, 5, 4), (2, 3, 5)),
        (
            node("FusedConv", ["x", "w"], ["y"], activation="Relu", strides=[2, 2]),
            (1, 3, 8, 8),
            (6, 3, 2, 2),
            (1, 6, 4, 4),
        ),
        (node("FusedGemm", ["x", "w"], ["y"], activation="Tanh", transB=1), (3, 4), (5, 4), (3, 5)),
        (node("DynamicQuantizeLSTM", ["x", "w", "w"], ["y"]), (7, 3, 5), (2, 5, 20), (7, 2, 3, 5)),
    ],
)
def test_sizes_behind_fused_operators_of_onnxruntime_are_known(
    fused: NodeProto, given: tuple[int, ...], weight: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    fused.domain = "com.microsoft"
    network = onnx_network([fused], {"x": given}, {"y": None}, w=np.zeros(weight, "float32"))
    _, types = fold_shapes.fold_with_types(network, {})
    assert fold_shapes.sizes_of(types["y"]) == sizes


def test_sizes_that_a_count_does_not_change_are_known() -> None:
    """How many numbers are not zero is known at run time alone, but it is one number."""
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Shape", ["places"], ["sizes"]),
        node("Gather", ["sizes", "one"], ["count"]),
        node("Equal", ["count", "zero"], ["none"]),
        node("Where", ["none", "x", "half"], ["y"]),
    ]
    numbers = {"one": np.int64(1), "zero": np.int64(0), "half": np.float32(0.5)}
    network = model(nodes, weights=numbers)
    _, types = fold_shapes.fold_with_types(network, {})
    assert fold_shapes.sizes_of(types["y"]) == (2, 3, 4)
    assert "NonZero" not in operators(simple(network))
