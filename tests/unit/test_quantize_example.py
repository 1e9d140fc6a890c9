"""examples/quantize.py: a network of 8 bits from the user's samples, and what is wrong with those."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import helper
from tvm import relax
from typer.testing import CliRunner, Result

from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from quantize import app
from quantize_model import round_weights
from tests.fixtures.answers import refused
from tests.fixtures.onnx_network import saved

onnxruntime = pytest.importorskip("onnxruntime")


def quantize(*words: object) -> Result:
    return CliRunner(env={"COLUMNS": "250"}).invoke(app, [str(word) for word in words])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["convolutions", "products"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, tuple[int, ...]]:
    """A float32 file and the shape of its input."""
    rng, products = np.random.default_rng(0), request.param == "products"
    shapes = {"w": (8, 12), "v": (12, 4)} if products else {"w": (8, 3, 3, 3), "v": (4, 8, 1, 1)}
    kind = "MatMul" if products else "Conv"
    weights = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    nodes = [
        helper.make_node(kind, ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node(kind, ["b", "v"], ["y"], name="second"),
    ]
    shape, result = ((1, 8), (1, 4)) if products else ((1, 3, 8, 8), (1, 4, 6, 6))
    return Path(saved(tmp_path / "real.onnx", nodes, {"x": shape}, {"y": result}, **weights)), shape


def samples(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "samples.npz", **arrays)
    return folder / "samples.npz"


def drawn(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype("float32")


def test_a_quantised_file_is_written_and_its_error_told(network: Any, tmp_path: Path) -> None:
    real, shape = network
    data = samples(tmp_path, x=drawn(6, *shape[1:]))
    result = quantize(real, "--data", data, "-o", "out.onnx", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["samples"] == 6
    assert 0 < told["errors"]["y"]["mean"] < told["errors"]["y"]["largest"] < 0.1
    kinds = [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node]
    assert "QuantizeLinear" in kinds
    assert "DequantizeLinear" in kinds


def test_it_leaves_logging_as_it_was(network: Any, tmp_path: Path) -> None:
    root = logging.getLogger()
    before = root.level, list(root.filters)
    assert not quantize(network[0], "--data", samples(tmp_path, x=drawn(1, *network[1])), "-o", "o").exit_code
    assert (root.level, root.filters) == before


def test_samples_may_have_the_axis_of_a_batch(network: Any, tmp_path: Path) -> None:
    real, shape = network
    result = quantize(real, "--data", samples(tmp_path, x=drawn(3, *shape)), "-o", "out.onnx")
    assert result.exit_code == 0, result.output
    assert "on 3 samples" in result.stdout


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"z": drawn(2, 8)}, "has z; the model's inputs are x"),
        ({"x": drawn(2, 7, 7, 7, 7)}, "the model takes"),
        ({"x": drawn(2, 2, 2)}, "the model takes"),
        ({"x": np.array(["a"])}, "the model takes"),
        ({}, "has nothing; the model's inputs are x"),
    ],
    ids=["another name", "too many axes", "another shape", "text", "empty"],
)
def test_samples_that_do_not_fit_are_refused(network: Any, tmp_path: Path, arrays: Any, said: str) -> None:
    refused(quantize(network[0], "--data", samples(tmp_path, **arrays), "-o", "out.onnx"), said)
    assert not (tmp_path / "out.onnx").exists()


def test_what_is_no_archive_of_arrays_is_refused(network: Any, tmp_path: Path) -> None:
    (tmp_path / "samples.npz").write_bytes(b"no archive")
    refused(quantize(network[0], "--data", "samples.npz", "-o", "out.onnx"), "is not an .npz file")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.onnx", "--data", "samples.npz", "-o", "out.onnx"), "there is no file 'none.onnx'"),
        (("real.onnx", "--data", "none.npz", "-o", "out.onnx"), "there is no file 'none.npz'"),
        (("real.onnx", "--data", "samples.npz", "-o", "none/out.onnx"), "there is no directory none"),
        (("real.onnx", "--data", "samples.npz", "-o", "real.onnx"), "is the input"),
        (("samples.npz", "--data", "samples.npz", "-o", "out.onnx"), "is not an ONNX model"),
    ],
)
def test_files_that_are_not_there_are_named(network: Any, tmp_path: Path, words: Any, said: str) -> None:
    samples(tmp_path, x=drawn(2, *network[1][1:]))
    refused(quantize(*words), said)


def test_a_quantised_file_is_not_quantised_again(network: Any, tmp_path: Path) -> None:
    data = samples(tmp_path, x=drawn(2, *network[1][1:]))
    quantize(network[0], "--data", data, "-o", "out.onnx")
    refused(quantize("out.onnx", "--data", data, "-o", "again.onnx"), "quantised already")


@pytest.fixture(params=["MatMul", "turned", "Gemm"])
def products(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A product of 50 inputs and 24 outputs, and a sum behind it."""
    kind, rng = request.param, np.random.default_rng(0)
    shape = (50, 24) if kind == "MatMul" else (24, 50)
    weights = {
        "w": rng.standard_normal(shape).astype("float32"),
        "b": rng.standard_normal(24).astype("float32"),
    }
    nodes = {
        "MatMul": [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])],
        "turned": [
            helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
            helper.make_node("MatMul", ["x", "t"], ["a"]),
            helper.make_node("Add", ["a", "b"], ["y"]),
        ],
        "Gemm": [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
    }[kind]
    return Path(saved(tmp_path / "real.onnx", nodes, {"x": [3, 50]}, {"y": [3, 24]}, **weights))


@pytest.mark.parametrize(("bits", "largest"), [(4, 0.15), (8, 0.01)])
@pytest.mark.parametrize("group", [16, 32])
def test_weights_alone_become_narrow_and_lose_a_step_at_most(
    products: Path, tmp_path: Path, bits: int, largest: float, group: int
) -> None:
    data = samples(tmp_path, x=drawn(2, 3, 50))
    result = quantize(
        products, "--weights", bits, "--group", group, "--data", data, "-o", "out.onnx", "--json"
    )
    assert result.exit_code == 0, result.output
    assert 0 < json.loads(result.stdout)["errors"]["y"]["largest"] < largest
    graph = onnx.load(tmp_path / "out.onnx").graph
    assert [node.op_type for node in graph.node if node.op_type != "Add"] == ["MatMulNBits"]
    assert "w" not in [tensor.name for tensor in graph.initializer]


def test_narrow_weights_come_in_and_are_multiplied_as_they_are(products: Path, tmp_path: Path) -> None:
    assert quantize(products, "--weights", 4, "-o", "out.onnx").exit_code == 0
    mod = load_network(tmp_path / "out.onnx").mod
    machine = relax.VirtualMachine(tvm.compile(mod, tvm.target.Target("llvm")), tvm.cpu())
    x = drawn(3, 50)
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    session = onnxruntime.InferenceSession(str(tmp_path / "out.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(found, session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)


@given(
    st.sampled_from([4, 8]),
    arrays("float32", (20, 3), elements=st.floats(-1e3, 1e3, width=32)),
)
def test_no_weight_is_further_from_its_number_than_one_step(bits: int, weights: Any) -> None:
    numbers, scales = round_weights(weights, bits, 16)
    half = 1 << (bits - 1)
    assert numbers.max() < 2 * half
    found = ((numbers.astype("float32") - half) * scales[..., None]).reshape(3, -1)[:, :20].T
    steps = np.repeat(np.abs(scales).T, 16, 0)[:20]
    assert (np.abs(found - weights) <= steps * 1.001 + 1e-30).all()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--weights", "5"), "weights cannot have 5 bits"),
        (("--weights", "4", "--group", "20"), "--group takes 16, 32, 64, 128, 256"),
        (("--weights", "4", "--group", "64"), "no product with constant weights of 64 rows"),
        ((), "--weights 8"),
    ],
)
def test_narrow_weights_that_are_not_made_are_refused(
    products: Path, words: tuple[str, ...], said: str
) -> None:
    refused(quantize(products, *words, "-o", "out.onnx"), said)


def test_weights_of_few_bits_are_not_rounded_again(products: Path) -> None:
    quantize(products, "--weights", 8, "-o", "out.onnx")
    refused(quantize("out.onnx", "--weights", 4, "-o", "again.onnx"), "quantised already")


def test_without_onnxruntime_the_line_that_installs_it_is_told(
    network: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    refused(
        quantize(network[0], "--data", "samples.npz", "-o", "out.onnx"),
        "onnxruntime, which is not installed",
        "pip install",
    )
