"""Networks of 16-bit real numbers: float32 inside on CPUs, their own type at their ends."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mallorn.graphc.export.export_checks import largest_allowed_error
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from tests.fixtures.onnx_network import saved
from tests.unit.graphc import networks
from tests.unit.graphc.networks import difference

DTYPES = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: ml_dtypes.bfloat16}
KINDS = pytest.mark.parametrize("kind", DTYPES, ids=["float16", "bfloat16"])
GPU = '{"kind":"cuda","arch":"sm_80"}'
RNG = np.random.default_rng(0)


def drawn(kind: int, *shape: int) -> Any:
    return RNG.standard_normal(shape).astype(DTYPES[kind])


def written(path: Path, kind: int, nodes: list[Any], weights: dict[str, Any], outputs: list[int]) -> Path:
    """A network of `x`, [5, 64], whose results y0, y1 and so on are of these types."""
    results = {f"y{at}": each for at, each in enumerate(outputs)}
    x = np.zeros((5, 64), DTYPES.get(kind, "float32"))
    return Path(saved(path, nodes, {"x": x}, results, opset=18, **weights))


def run(path: Path, x: Any) -> list[Any]:
    found = networks.run(load_network(path).mod, x)
    return found if isinstance(found, list) else [found]


def real(value: Any) -> Any:
    return np.asarray(value).astype("float32")


def mlp(path: Path, kind: int, inner: int = 96) -> tuple[Path, Any]:
    """Two products, the second of whose weights are large; what float32 makes of them."""
    weights = {"a": drawn(kind, 64, inner), "b": drawn(kind, inner, 48), "least": drawn(kind)}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["inner"]),
        helper.make_node("Max", ["inner", "least"], ["kept"]),
        helper.make_node("MatMul", ["kept", "b"], ["y0"]),
    ]
    x = drawn(kind, 5, 64)
    kept = np.maximum(real(x) @ real(weights["a"]), real(weights["least"]))
    return written(path, kind, nodes, weights, [kind]), (x, kept @ real(weights["b"]))


@KINDS
@pytest.mark.parametrize("inner", [96, 2048], ids=["light", "heavy"])
def test_sums_are_of_wide_numbers(tmp_path: Path, kind: int, inner: int) -> None:
    path, (x, wanted) = mlp(tmp_path / "m.onnx", kind, inner)
    (found,) = run(path, x)
    assert found.dtype == DTYPES[kind]
    assert difference(real(found), wanted) <= (2e-3 if kind == TensorProto.FLOAT16 else 1e-2)


@KINDS
def test_only_its_ends_are_narrow(tmp_path: Path, kind: int) -> None:
    path, _ = mlp(tmp_path / "m.onnx", kind)
    text = load_network(path).mod.script()
    assert text.count("R.astype") == 2
    assert 'R.matmul(lv, metadata["ir.GenericConst"][0]' in text


@KINDS
def test_types_that_nodes_name_are_wide_inside(tmp_path: Path, kind: int) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Exp", ["wide"], ["grown"]),
        helper.make_node("Cast", ["grown"], ["narrow"], to=kind),
        helper.make_node("Add", ["narrow", "x"], ["y0"]),
        helper.make_node("Identity", ["wide"], ["y1"]),
    ]
    path, x = written(tmp_path / "m.onnx", kind, nodes, {}, [kind, TensorProto.FLOAT]), drawn(kind, 5, 64)
    first, second = run(path, x)
    assert (first.dtype, second.dtype) == (DTYPES[kind], "float32")
    assert difference(real(first), np.exp(real(x)) + real(x)) < 1e-2
    np.testing.assert_array_equal(second, real(x))


def test_a_result_that_is_read_again_keeps_its_type(tmp_path: Path) -> None:
    kind = TensorProto.FLOAT16
    nodes = [helper.make_node("Abs", ["x"], ["y0"]), helper.make_node("Neg", ["y0"], ["y1"])]
    x = drawn(kind, 5, 64)
    first, second = run(written(tmp_path / "m.onnx", kind, nodes, {}, [kind, kind]), x)
    np.testing.assert_array_equal(first, np.abs(x))
    np.testing.assert_array_equal(second, -np.abs(x))


def test_weights_may_be_inputs_as_in_old_files(tmp_path: Path) -> None:
    path, (x, wanted) = mlp(tmp_path / "m.onnx", TensorProto.FLOAT16)
    old = onnx.load(path)
    for tensor in old.graph.initializer:
        old.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    old.ir_version = 3
    onnx.save(old, path)
    (found,) = run(path, x)
    assert difference(real(found), wanted) <= 2e-3


def test_gpus_compute_halves(tmp_path: Path) -> None:
    path, _ = mlp(tmp_path / "m.onnx", TensorProto.FLOAT16)
    assert "R.astype" not in load_network(path, target=as_tvm_target(GPU)).mod.script()


def test_networks_without_halves_stay_as_they_are(tmp_path: Path) -> None:
    weights = {"a": RNG.standard_normal((64, 8)).astype("float32")}
    node = helper.make_node("MatMul", ["x", "a"], ["y0"])
    path = written(tmp_path / "m.onnx", TensorProto.FLOAT, [node], weights, [TensorProto.FLOAT])
    assert "R.astype" not in load_network(path).mod.script()


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [(TensorProto.FLOAT16, 4e-3), (TensorProto.BFLOAT16, 3e-2), (TensorProto.FLOAT, 0.0)],
    ids=["float16", "bfloat16", "float32"],
)
def test_results_may_differ_by_what_their_type_rounds(tmp_path: Path, kind: int, allowed: float) -> None:
    node = helper.make_node("Cast", ["x"], ["y0"], to=kind)
    path = written(tmp_path / "m.onnx", TensorProto.FLOAT16, [node], {}, [kind])
    assert largest_allowed_error(path) == allowed


@pytest.mark.parametrize("in_branch", [False, True])
def test_a_cast_on_the_way_to_float32_results_rounds_as_well(tmp_path: Path, in_branch: bool) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["narrow"], ["y0"], to=TensorProto.FLOAT),
    ]
    if in_branch:
        inner = helper.make_graph(nodes, "inner", [], [])
        nodes = [helper.make_node("If", ["x"], ["y0"], then_branch=inner, else_branch=inner)]
    path = written(tmp_path / "m.onnx", TensorProto.FLOAT, nodes, {}, [TensorProto.FLOAT])
    assert largest_allowed_error(path) == 4e-3


def test_a_name_that_sounds_quantised_allows_nothing(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y0"], name="after_QuantizeLinear")
    path = written(tmp_path / "m.onnx", TensorProto.FLOAT, [node], {}, [TensorProto.FLOAT])
    assert largest_allowed_error(path) == 0.0


@pytest.mark.parametrize("operator", ["QuantizeLinear", "MatMulNBits"])
def test_an_operator_in_a_branch_counts(tmp_path: Path, operator: str) -> None:
    inner = helper.make_graph([helper.make_node(operator, ["x"], ["z"])], "inner", [], [])
    node = helper.make_node("If", ["x"], ["y0"], then_branch=inner, else_branch=inner)
    path = written(tmp_path / "m.onnx", TensorProto.FLOAT, [node], {}, [TensorProto.FLOAT])
    assert largest_allowed_error(path) == {"QuantizeLinear": 0.15, "MatMulNBits": 0.05}[operator]


@pytest.mark.parametrize("content", [b"", b"no protobuf", b"\x3a\xff\xff"], ids=["empty", "text", "cut"])
def test_what_is_no_model_is_allowed_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    assert largest_allowed_error(tmp_path / "m.onnx") == 0.0
