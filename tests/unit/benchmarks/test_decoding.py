"""The benchmark of decoders: what a step reads, and its headline."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from benchmarks.decoding import headline, weights_read, with_narrow_inputs
from tests.fixtures.onnx_network import saved


def cell(rows: int, past: int, **us: float) -> dict[str, object]:
    return {"sizes": {"sequence": rows, "past": past}, "us": us}


def test_only_what_products_multiply_is_read_by_a_step(tmp_path: Path) -> None:
    arrays = {"table": (50, 8), "w": (8, 4), "turned": (4, 8), "bias": (4,)}
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Transpose", ["turned"], ["t"]),
        helper.make_node("MatMul", ["x", "t"], ["b"]),
        helper.make_node("Add", ["a", "bias"], ["y"]),
    ]
    constants = {name: np.zeros(shape, "float32") for name, shape in arrays.items()}
    saved(tmp_path / "m.onnx", nodes, {"ids": np.zeros(1, "int64")}, {"y": [1, 4]}, **constants)
    assert weights_read(tmp_path / "m.onnx") == 2 * 4 * 8 * 4


def test_the_headline_tells_tokens_a_second_and_the_share_of_the_memory() -> None:
    steps = [cell(1, 64, range=10_000.0, onnxruntime=20_000.0)]
    said = headline(steps, [cell(128, 0, range=50_000.0)], size=200_000_000, rate=25.0)
    assert "tokens a second behind 64: range 100.0, onnxruntime 50.0 (80% of memory's rate)" in said
    assert "ms to the first token of 128: range 50.0" in said


def test_other_engines_may_take_inputs_of_8_bits_where_weights_are_narrow(tmp_path: Path) -> None:
    narrow = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], accuracy_level=0, bits=4, K=32, N=8)
    plain = helper.make_node("MatMul", ["x", "w"], ["y"])
    paths = [tmp_path / "narrow.onnx", tmp_path / "plain.onnx"]
    for node, path in zip((narrow, plain), paths, strict=True):
        saved(path, [node], {}, {})
    copy, none = map(with_narrow_inputs, paths)
    assert copy is not None
    (found,) = onnx.load(copy).graph.node
    assert {attribute.name: attribute.i for attribute in found.attribute}["accuracy_level"] == 4
    assert none is None
