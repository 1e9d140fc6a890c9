"""Integers of a model's inputs by what its graph does with them: lengths, flags, bytes and indices."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from mallorn.graphc.export.compile_network import random_inputs
from mallorn.graphc.onnx.value_ranges import value_ranges

SHAPES = {"x": [1, 16000], "n": [1]}


def model(nodes: Sequence[Any], constants: Mapping[str, Any], inputs: Mapping[str, Any], output: str) -> Any:
    """A model whose free dimensions have names."""
    graph = helper.make_graph(
        list(nodes),
        "model",
        [helper.make_tensor_value_info(name, *each) for name, each in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def masked(*frames: Any, length: str = "n", name: str = "n") -> Any:
    """Samples, of which those after a length are set to zero; `frames` compute the length from `n`."""
    nodes = [
        *frames,
        helper.make_node("Shape", ["x"], ["shape"], start=1),
        helper.make_node("Squeeze", ["shape"], ["size"]),
        helper.make_node("Range", ["zero", "size", "one"], ["places"]),
        helper.make_node("Unsqueeze", [length, "axis"], ["column"]),
        helper.make_node("Less", ["places", "column"], ["mask"]),
        helper.make_node("Where", ["mask", "x", "nothing"], ["y"]),
    ]
    constants = {
        "zero": np.int64(0), "one": np.int64(1), "axis": np.array([1]), "nothing": np.float32(0),
        "hop": np.int64(10), "pad": np.int64(9),
    }  # fmt: skip
    inputs = {"x": (TensorProto.FLOAT, ["batch", "time"]), name: (TensorProto.INT64, ["batch"])}
    return model(nodes, constants, inputs, "y")


@pytest.mark.parametrize(
    ("frames", "length", "expected"),
    [
        pytest.param([], "n", (8000, 16001), id="the length itself"),
        pytest.param([helper.make_node("Mul", ["n", "hop"], ["k"])], "k", (800, 1601), id="in other units"),
        pytest.param(
            [helper.make_node("Add", ["n", "pad"], ["p"]), helper.make_node("Div", ["p", "one"], ["k"])],
            "k", (7996, 15992), id="padded",
        ),
        pytest.param([helper.make_node("Abs", ["n"], ["k"])], "k", (8000, 16001), id="its size"),
    ],
)  # fmt: skip
def test_a_length_is_half_to_all_of_what_it_limits(
    frames: list[Any], length: str, expected: tuple[int, int]
) -> None:
    assert value_ranges(masked(*frames, length=length), SHAPES) == {"n": expected}


def test_of_a_length_that_is_not_understood_the_name_tells() -> None:
    nodes = [helper.make_node("ReverseSequence", ["x", "x_lens"], ["y"], batch_axis=0, time_axis=1)]
    inputs = {"x": (TensorProto.FLOAT, ["batch", "time"]), "x_lens": (TensorProto.INT64, ["batch"])}
    of_reversed = model(nodes, {}, inputs, "y")
    assert value_ranges(of_reversed, {"x": [1, 50], "x_lens": [1]}) == {"x_lens": (25, 51)}
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    assert value_ranges(model(nodes, {}, inputs, "y"), {"x": [1, 50], "x_lens": [1]}) == {"x_lens": (25, 51)}


def test_flags_bytes_and_numbers_to_compare_with() -> None:
    nodes = [
        helper.make_node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["picture"], ["p"], to=TensorProto.FLOAT),
        helper.make_node("Equal", ["rate", "known"], ["is_known"]),
        helper.make_node("Mul", ["m", "p"], ["a"]),
        helper.make_node("Where", ["is_known", "a", "m"], ["y"]),
    ]
    inputs = {
        "mask": (TensorProto.INT64, [2, 50]),
        "picture": (TensorProto.UINT8, [2, 50]),
        "rate": (TensorProto.INT64, []),
    }
    flags = model(nodes, {"known": np.int64(16000)}, inputs, "y")
    assert value_ranges(flags, {}) == {"mask": (0, 2), "picture": (0, 256), "rate": (16000, 16001)}
    arrays = random_inputs(flags, {}, {"mask": [0, 30000]})
    assert 0.7 < arrays["mask"].mean() < 1
    assert arrays["picture"].max() > 100


def test_indices_keep_the_ranges_of_the_import() -> None:
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"])]
    lookup = model(nodes, {"table": np.ones((7, 3), "float32")}, {"ids": (TensorProto.INT64, [1, 50])}, "y")
    assert value_ranges(lookup, {}) == {}
    assert random_inputs(lookup, {}, {"ids": [0, 7]})["ids"].max() == 6
    nodes += [
        helper.make_node("Equal", ["ids", "last"], ["is_last"]),
        helper.make_node("Unsqueeze", ["is_last", "axis"], ["column"]),
        helper.make_node("Where", ["column", "y", "zero"], ["z"]),
    ]
    constants = {"table": np.ones((7, 3), "float32"), "last": np.int64(5)}
    constants |= {"zero": np.float32(0), "axis": np.array([2])}
    tokens = model(nodes, constants, {"ids": (TensorProto.INT64, [1, 50])}, "z")
    assert value_ranges(tokens, {}) == {}


def test_three_draws_differ_and_a_seed_draws_again() -> None:
    draws = [random_inputs(masked(), SHAPES, {}, seed) for seed in (0, 1, 2, 0)]
    assert len({int(draw["n"][0]) for draw in draws[:3]}) > 1
    np.testing.assert_array_equal(draws[0]["x"], draws[3]["x"])
