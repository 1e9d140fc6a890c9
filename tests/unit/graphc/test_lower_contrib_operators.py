"""Operators of onnxruntime's own give the numbers that onnxruntime gives."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper

from mallorn.core.errors import InvalidModel
from mallorn.graphc.export import compare_with_onnxruntime
from mallorn.workers.tvm.compile.reference_outputs import replace_special_instructions
from mallorn.workers.tvm.network.extract_tasks import count_operations
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.tvm.programs.allowed_programs import check_program
from tests.fixtures.onnx_network import saved
from tests.unit.graphc import arm_loops
from tests.unit.graphc.networks import HASWELL, program, run, run_onnxruntime, scheduled
from tests.unit.graphc.test_int8_dot_products import TARGETS

pytest.importorskip("onnxruntime")
Arrays = Mapping[str, Any]
HEADS, GROUPS, NUMBERS, PLACES = 4, 2, 16, 64
RNG = np.random.default_rng(0)
VNNI = TARGETS["512 bits"]


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def written(path: Path, node: Any, fed: Arrays, known: Arrays, opset: int = 17) -> str:
    """A model of the node alone."""
    results = dict.fromkeys(name for name in node.output if name)
    return saved(path / "m.onnx", [node], fed, results, opset=opset, **known)


def same(path: str, fed: Arrays) -> None:
    found = run(load_network(path).mod, *fed.values())
    wanted = run_onnxruntime(path, *fed.values())
    for ours, theirs in zip(found if isinstance(found, list) else [found], wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6)


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
    same(written(tmp_path, node, fed, known), fed)


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_a_norm_that_claims_to_be_of_onnx(tmp_path: Path, opset: int, domain: str) -> None:
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "s"], ["y"], domain="", epsilon=1e-6)
    fed, known = {"x": drawn(2, 5, 16)}, {"s": drawn(16)}
    (wanted,) = run_onnxruntime(written(tmp_path, node, fed, known, opset), fed["x"])
    node.domain = domain
    mod = load_network(written(tmp_path, node, fed, known, opset)).mod
    np.testing.assert_allclose(run(mod, fed["x"]), wanted, rtol=1e-5)


def test_a_sum_before_a_norm_is_a_result_too(tmp_path: Path) -> None:
    fed, known = {"x": drawn(2, 5, 16), "z": drawn(2, 5, 16)}, {"s": drawn(16)}
    given, found = ["x", "z", "s"], ["y", "", "", "sum"]
    node = helper.make_node("SkipSimplifiedLayerNormalization", given, found, domain="com.microsoft")
    same(written(tmp_path, node, fed, known), fed)


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
    heads = {"num_heads": HEADS, "kv_num_heads": GROUPS, **attributes}
    results = ["y", "keys", "values"]
    node = helper.make_node("GroupQueryAttention", given, results, domain="com.microsoft", **heads)
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
    same(written(tmp_path, node, fed, known), fed)


def test_an_attention_without_caches_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    node, fed, known = attention(9, 1)
    del node.output[1:]
    with pytest.raises(InvalidModel, match="the GroupQueryAttention has no caches"):
        load_network(written(tmp_path, node, fed, known))


@pytest.mark.parametrize(
    ("opset", "more"), [(14, ()), (14, ("beta",)), (14, ("beta", "bias")), (17, ()), (18, ("beta", "bias"))]
)
def test_a_norm_of_a_sum(tmp_path: Path, opset: int, more: tuple[str, ...]) -> None:
    fed = {"x": drawn(2, 5, 16), "z": drawn(2, 5, 16)}
    known = {name: drawn(16) for name in ("gamma", *more)}
    given, found = [*fed, *known], ["y", "", "", "sum"]
    node = helper.make_node("SkipLayerNormalization", given, found, domain="com.microsoft", epsilon=1e-6)
    same(written(tmp_path, node, fed, known, opset), fed)


WIDE = HEADS * NUMBERS
MASKS: Mapping[str, Any] = {
    "places": np.array([[1] * 12, [1] * 9 + [0] * 3], "int32"),
    "rows": np.tril(np.ones((2, 5, 12), "int32"), 7),
    "lengths": np.array([12, 9], "int32"),
}


def many_heads(past: int, given: Sequence[str] = (), **attributes: Any) -> tuple[Any, Arrays, Arrays]:
    """A MultiHeadAttention of 5 rows over 12 keys, what it is fed, and its constants."""
    new = 12 - past
    fed: dict[str, Any] = {"q": drawn(2, 5, WIDE), "k": drawn(2, new, WIDE), "v": drawn(2, new, WIDE)}
    if "heads" in given:
        fed |= {name: drawn(2, HEADS, new, NUMBERS) for name in "kv"}
    known = {"bias": drawn(3 * WIDE)} if "bias" in given else {}
    names = ["q", "k", "v", *("bias" if "bias" in given else "",)]
    mask = next((name for name in given if name in MASKS), "")
    if mask:
        fed["mask"] = MASKS[mask]
    names.append("mask" if mask else "")
    if "scores" in given:
        fed["scores"] = drawn(1, HEADS, 5, 12)
    names.append("scores" if "scores" in given else "")
    if past:
        fed |= {name: drawn(2, HEADS, past, NUMBERS) for name in ("past_k", "past_v")}
        names += ["past_k", "past_v"]
    results = ["y", "keys", "values"] if past else ["y"]
    node = helper.make_node(
        "MultiHeadAttention", names, results, domain="com.microsoft", num_heads=HEADS, **attributes
    )
    return node, fed, known


@pytest.mark.parametrize("past", [0, 7])
@pytest.mark.parametrize(
    ("given", "attributes"),
    [
        ((), {}),
        (("bias",), {"scale": 0.5}),
        (("places",), {}),
        (("lengths",), {}),
        (("rows", "scores"), {}),
        (("bias", "places", "scores"), {"mask_filter_value": -5.0}),
    ],
    ids=str,
)
def test_attention_with_masks_biases_and_caches(
    tmp_path: Path, past: int, given: Any, attributes: Any
) -> None:
    node, fed, known = many_heads(past, given, **attributes)
    same(written(tmp_path, node, fed, known), fed)


def test_attention_to_keys_that_come_by_heads(tmp_path: Path) -> None:
    node, fed, known = many_heads(0, ("heads",))
    same(written(tmp_path, node, fed, known), fed)


@pytest.mark.parametrize("past", [0, 7])
def test_attention_to_nothing_behind_a_row(tmp_path: Path, past: int) -> None:
    node, fed, known = many_heads(past, unidirectional=1)
    rows = {name: value[:, : 12 - past] for name, value in {"q": drawn(2, 12, WIDE)}.items()}
    same(written(tmp_path, node, {**fed, **rows}, known), {**fed, **rows})


def test_layers_behind_each_other_know_their_sizes(tmp_path: Path) -> None:
    fed, known = {"x": drawn(2, 5, WIDE)}, {"gamma": drawn(WIDE), "bias": drawn(3 * WIDE)}
    nodes, last, domain = [], "x", "com.microsoft"
    for at in range(2):
        given, attended, normed = [last] * 3 + ["bias"], f"attended{at}", f"normed{at}"
        nodes += [
            helper.make_node("MultiHeadAttention", given, [attended], domain=domain, num_heads=HEADS),
            helper.make_node("SkipLayerNormalization", [attended, last, "gamma"], [normed], domain=domain),
        ]
        last = normed
    same(saved(tmp_path / "m.onnx", nodes, fed, {last: None}, **known), fed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda node: node.input.__setitem__(slice(1, 3), ["", ""]), "queries, keys and values in one"),
        (lambda node: node.output.extend(["", "", "scores"]), "the scores as an output"),
    ],
    ids=["packed", "scores"],
)
def test_an_attention_that_is_not_written_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    node, fed, known = many_heads(0)
    change(node)
    with pytest.raises(InvalidModel, match=f"the MultiHeadAttention has {said}"):
        load_network(written(tmp_path, node, {"q": fed["q"], **fed}, known))


@pytest.mark.parametrize(
    ("past", "given"),
    [
        *((past, given) for past in (0, 7) for given in ((), ("places",), ("lengths",))),
        (0, ("rows", "scores")),
    ],
    ids=str,
)
def test_attention_with_its_weights(tmp_path: Path, past: int, given: Any) -> None:
    rows = 12 - past
    fed: dict[str, Any] = {"x": drawn(2, rows, WIDE)}
    known = {"w": 0.03 * drawn(WIDE, 3 * WIDE), "b": drawn(3 * WIDE)}
    mask = next((name for name in given if name in MASKS), "")
    names = ["x", "w", "b", "mask" if mask else "", "past" if past else ""]
    if mask:
        fed["mask"] = MASKS[mask] if mask != "rows" else np.tril(np.ones((2, rows, 12), "int32"), past)
    if past:
        fed["past"] = drawn(2, 2, HEADS, past, NUMBERS)
    if "scores" in given:
        fed["scores"] = drawn(1, HEADS, rows, 12)
        names.append("scores")
    found = ["y", "present"] if past else ["y"]
    node = helper.make_node("Attention", names, found, domain="com.microsoft", num_heads=HEADS, scale=0.1)
    same(written(tmp_path, node, fed, known), fed)


@pytest.mark.pairwise
@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("more", [(), ("mask",), ("mask", "places")], ids=len)
@pytest.mark.parametrize("segments", [False, True])
def test_a_norm_of_rows_of_tables(tmp_path: Path, opset: int, more: Any, segments: bool) -> None:
    fed: dict[str, Any] = {"x": RNG.integers(0, 30, (2, 5)).astype("int32")}
    fed |= {"segments": RNG.integers(0, 2, (2, 5)).astype("int32")} if segments else {}
    fed |= {"mask": np.array([[1] * 5, [1] * 3 + [0] * 2], "int32")} if "mask" in more else {}
    fed |= {"places": RNG.integers(0, 9, (2, 5)).astype("int32")} if "places" in more else {}
    known = {"words": drawn(30, 16), "table": drawn(9, 16), "gamma": drawn(16), "beta": drawn(16)}
    known |= {"kinds": drawn(2, 16)} if segments else {}
    names = ["x", "segments", "words", "table", "kinds", "gamma", "beta", "mask", "places"]
    given = [name if name in fed or name in known else "" for name in names]
    node = helper.make_node("EmbedLayerNormalization", given, ["y", "count", "sum"], domain="com.microsoft")
    results = {"y": None, "count": TensorProto.INT32, "sum": None}
    same(saved(tmp_path / "m.onnx", [node], fed, results, opset=opset, **known), fed)


def quantised_lstm(folder: Path, kind: str, zero: int, *, per_unit: bool = False) -> tuple[str, Arrays]:
    """A layer whose weights have 256 values and the zero point `zero`, and states beyond 1."""
    units, gates, batch = 20, 80, 3
    low = np.iinfo(kind).min
    scales = (2, gates) if per_unit else (2,)
    known = {
        "w": RNG.integers(low, low + 256, (2, NUMBERS, gates)).astype(kind),
        "r": RNG.integers(low, low + 256, (2, units, gates)).astype(kind),
        "b": drawn(2, 2 * gates) / 4,
        "h0": 3 * drawn(2, batch, units),
        "c0": drawn(2, batch, units),
        **{name: RNG.uniform(0.001, 0.004, scales).astype("float32") for name in ("ws", "rs")},
        **{name: np.full(scales, zero, kind) for name in ("wz", "rz")},
    }
    given = ["x", "w", "r", "b", "", "h0", "c0", "", "ws", "wz", "rs", "rz"]
    attributes = {"hidden_size": units, "direction": "bidirectional", "domain": "com.microsoft"}
    node = helper.make_node("DynamicQuantizeLSTM", given, ["y", "h", "c"], **attributes)
    fed = {"x": drawn(5, batch, NUMBERS)}
    return written(folder, node, fed, known), fed


@pytest.mark.parametrize(
    ("kind", "zero", "per_unit"),
    [("int8", 0, False), ("int8", 0, True), ("uint8", 128, False), ("int8", -8, False)],
)
@pytest.mark.parametrize(
    ("target", "lanes"),
    [(HASWELL, 0), (VNNI, 16), (arm_loops.target("dotprod"), 0), (arm_loops.target("i8mm"), 4)],
    ids=["floats", "bytes", "floats for lack of USDOT", "bytes by USDOT"],
)
def test_an_lstm_with_quantised_weights(
    tmp_path: Path, target: str, lanes: int, kind: str, zero: int, per_unit: bool
) -> None:
    """Weights are multiplied as bytes where their differences from the zero point fit into one."""
    path, fed = quantised_lstm(tmp_path, kind, zero, per_unit=per_unit)
    mod = load_network(path, target=as_tvm_target(target)).mod
    has_bytes = lanes > 0 and zero != -8
    assert (f"mallorn_quads_{lanes}" in mod.script()) is has_bytes
    found = run(replace_special_instructions(mod), fed["x"])
    for ours, theirs in zip(found, run_onnxruntime(path, fed["x"]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1 / 16)  # onnxruntime rounds to 8 bits
    unrounded = compare_with_onnxruntime.run_onnxruntime(path, {"x": fed["x"]}, fused=False)
    for ours, truth in zip(found, unrounded, strict=True):
        np.testing.assert_allclose(ours, truth, atol=5e-4 if has_bytes else 1e-5)


def test_a_layer_of_bytes_is_a_program_that_may_be_stored_and_stays_in_its_buffers(tmp_path: Path) -> None:
    path, _ = quantised_lstm(tmp_path, "int8", 0)
    scan = program(load_network(path, target=as_tvm_target(VNNI)).mod, "lstm_scan")
    check_program(tvm.ir.save_json(scan))
    scheduled(scan, VNNI)
    steps, batch, directions, units, packed = 5, 3, 2, 20, 32
    assert count_operations(scan) == 2 * steps * batch * directions * units * 4 * packed


@pytest.mark.parametrize(
    ("activation", "numbers"),
    [("Relu", []), ("LeakyRelu", [0.3]), ("Clip", [-0.5, 2.0]), ("HardSigmoid", [0.25, 0.4]), ("Tanh", [])],
)
def test_a_convolution_fused_with_a_sum_and_an_activation(
    tmp_path: Path, activation: str, numbers: list[float]
) -> None:
    attributes = {"activation": activation, "pads": [1, 1, 1, 1], "domain": "com.microsoft"}
    attributes |= {"activation_params": numbers} if numbers else {}
    given = ["x", "w", "b", *(["z"] if activation == "Relu" else [])]
    fed = {name: drawn(1, 4, 5, 5) for name in ("x", "z") if name in given}
    known = {"w": drawn(4, 4, 3, 3), "b": drawn(4)}
    same(written(tmp_path, helper.make_node("FusedConv", given, ["y"], **attributes), fed, known), fed)


def test_a_product_fused_with_an_activation(tmp_path: Path) -> None:
    attributes = {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1, "domain": "com.microsoft"}
    node = helper.make_node("FusedGemm", ["x", "w", "b"], ["y"], **attributes)
    fed = {"x": drawn(3, 5)}
    same(written(tmp_path, node, fed, {"w": drawn(4, 5), "b": drawn(4)}), fed)


def test_an_activation_that_is_not_known_is_named(tmp_path: Path) -> None:
    node = helper.make_node("FusedGemm", ["x", "w"], ["y"], activation="Swirl", domain="com.microsoft")
    with pytest.raises(InvalidModel, match="FusedGemm has the activation Swirl"):
        load_network(written(tmp_path, node, {"x": drawn(3, 5)}, {"w": drawn(5, 4)}))
