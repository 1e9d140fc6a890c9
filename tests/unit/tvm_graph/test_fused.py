"""Operators of onnxruntime's own give the numbers that onnxruntime gives."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from mallorn.core.errors import InvalidModel
from workers.tvm.model import load_network

onnxruntime = pytest.importorskip("onnxruntime")
Arrays = Mapping[str, Any]
HEADS, GROUPS, NUMBERS, PLACES = 4, 2, 16, 64
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def written(path: Path, node: Any, fed: Arrays, constants: Arrays, opset: int = 17) -> Path:
    """A model of the node alone."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in fed.items()
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output if name]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "one", inputs, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
    return path


def same(path: Path, fed: Arrays) -> None:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted: Sequence[Any] = session.run(None, dict(fed))
    machine = relax.VirtualMachine(tvm.compile(load_network(path).mod, tvm.target.Target("llvm")), tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(value) for value in fed.values()))
    for ours, theirs in zip([found] if hasattr(found, "numpy") else found, wanted, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("operator", "attributes", "more", "constants"),
    [
        ("SkipSimplifiedLayerNormalization", {"epsilon": 1e-6}, {"z": (2, 5, 16)}, {"s": (16,)}),
        ("BiasGelu", {}, {}, {"b": (16,)}),
        ("FastGelu", {}, {}, {}),
        ("FastGelu", {}, {}, {"b": (16,)}),
        ("QuickGelu", {"alpha": 1.5}, {}, {}),
        ("Gelu", {}, {}, {}),
        ("FusedMatMul", {"transB": 1, "alpha": 0.25}, {"z": (2, 7, 16)}, {}),
        ("FusedMatMul", {"transA": 1}, {"z": (2, 5, 7)}, {}),
    ],
)
def test_what_its_optimiser_fuses(
    tmp_path: Path, operator: str, attributes: Any, more: Any, constants: Any
) -> None:
    fed = {"x": drawn(2, 5, 16)} | {name: drawn(*shape) for name, shape in more.items()}
    known = {name: drawn(*shape) for name, shape in constants.items()}
    node = helper.make_node(operator, [*fed, *known], ["y"], domain="com.microsoft", **attributes)
    same(written(tmp_path / "m.onnx", node, fed, known), fed)


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_a_norm_that_claims_to_be_of_onnx(tmp_path: Path, opset: int, domain: str) -> None:
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "s"], ["y"], domain="", epsilon=1e-6)
    fed, known = {"x": drawn(2, 5, 16)}, {"s": drawn(16)}
    theirs = written(tmp_path / "theirs.onnx", node, fed, known, opset)
    session = onnxruntime.InferenceSession(str(theirs), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, fed)
    node.domain = domain
    path = written(tmp_path / "m.onnx", node, fed, known, opset)
    machine = relax.VirtualMachine(tvm.compile(load_network(path).mod, tvm.target.Target("llvm")), tvm.cpu())
    np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(fed["x"])).numpy(), wanted, rtol=1e-5)


def test_a_sum_before_a_norm_is_a_result_too(tmp_path: Path) -> None:
    fed, known = {"x": drawn(2, 5, 16), "z": drawn(2, 5, 16)}, {"s": drawn(16)}
    given, found = ["x", "z", "s"], ["y", "", "", "sum"]
    node = helper.make_node("SkipSimplifiedLayerNormalization", given, found, domain="com.microsoft")
    same(written(tmp_path / "m.onnx", node, fed, known), fed)


def attention(past: int, rows: int, packed: bool = False, **attributes: Any) -> tuple[Any, Arrays, Arrays]:
    """A GroupQueryAttention, what it is fed, and its constants."""
    sizes = {"q": HEADS, "k": GROUPS, "v": GROUPS}
    fed: dict[str, Any] = {name: drawn(1, rows, count * NUMBERS) for name, count in sizes.items()}
    if packed:
        fed = {"q": np.concatenate(list(fed.values()), -1)}
    caches = {name: drawn(1, GROUPS, past, NUMBERS) for name in ("past_k", "past_v")}
    fed |= caches | {"length": np.array([past + rows - 1], "int32")}
    known = {"total": np.array(past + rows, "int32")}
    given = [*("q", "" if packed else "k", "" if packed else "v"), *caches, "length", "total"]
    if attributes.get("do_rotary"):
        known |= {"cos": drawn(PLACES, NUMBERS // 2), "sin": drawn(PLACES, NUMBERS // 2)}
        given += ["cos", "sin"]
    node = helper.make_node(
        "GroupQueryAttention",
        given,
        ["y", "keys", "values"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=GROUPS,
        **attributes,
    )
    return node, fed, known


@pytest.mark.parametrize(
    ("packed", "attributes"),
    [
        (False, {}),
        (False, {"do_rotary": 1}),
        (True, {"do_rotary": 1}),
        (False, {"do_rotary": 1, "rotary_interleaved": 1}),
        (True, {"do_rotary": 1, "local_window_size": 4}),
        (False, {"softcap": 5.0}),
        (False, {"scale": 0.5}),
    ],
)
def test_attention_over_caches_that_queries_share(tmp_path: Path, packed: bool, attributes: Any) -> None:
    node, fed, known = attention(9, 1, packed, **attributes)
    same(written(tmp_path / "m.onnx", node, fed, known), fed)


def test_an_attention_without_caches_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    node, fed, known = attention(9, 1)
    del node.output[1:]
    with pytest.raises(InvalidModel, match="its GroupQueryAttention has no caches"):
        load_network(written(tmp_path / "m.onnx", node, fed, known))
