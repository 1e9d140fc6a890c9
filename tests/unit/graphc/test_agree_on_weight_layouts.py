"""Weights that several functions read: one layout for all whose vectors stay whole, equal constants once."""

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.script import from_source

from mallorn.graphc.core import graph_rewriting
from mallorn.graphc.fold.constants import Constants
from mallorn.graphc.ranges import reduce_weight_layouts as layouts_module
from mallorn.graphc.ranges.reduce_weight_layouts import (
    Digit,
    keeps_runs_contiguous,
    merge_digits,
    reduce_weight_layouts,
)
from tests.unit.graphc.networks import call, program

ROWS, COLUMNS = 8, 48


def packed(split: int, width: int) -> layouts_module.Layout:
    """Rows in two parts within columns in two, as schedules leave them."""
    return (Digit(1, width, COLUMNS), Digit(0, split, ROWS), Digit(0, 1, split), Digit(1, 1, width))


def module(weights: Any, split: int, width: int) -> Any:
    """A product of a row with weights, re-laid for this width, behind a call."""
    layout = f"j // {width}, k // {split}, k % {split}, j % {width}"
    return laid_out(weights, layout, f"{COLUMNS // width}, {ROWS // split}, {split}, {width}")


def laid_out(weights: Any, layout: str, sizes: str, seen: str = "", read: str = "") -> Any:
    source = f"""
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def product(x: T.Buffer(({ROWS},), "float32"), w: T.Buffer(({ROWS}, {COLUMNS}), "float32"),
            y: T.Buffer(({COLUMNS},), "float32")):
    relaid = T.sblock_alloc_buffer(({sizes}))
    for a, b in T.grid({ROWS}, {COLUMNS}):
        with T.sblock("w_relaid"):
            k, j = T.axis.remap("SS", [a, b])
            T.sblock_attr({{"meta_schedule.layout_rewrite_preproc": 1}})
            relaid[{layout}] = w[k, j]
    for b, a in T.grid({COLUMNS}, {ROWS}):
        with T.sblock("sum"):
            j, k = T.axis.remap("SR", [b, a])
            T.reads(x[0:{ROWS}], relaid[{", ".join("0:" + size for size in sizes.split(", "))}])
            T.writes(y[j])
            {seen}
            with T.init():
                y[j] = T.float32(0)
            y[j] = y[j] + x[k] * {read or f"relaid[{layout}]"}
"""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((ROWS,), "float32"))
    with builder.function("main", [x]):
        product = builder.add_func(from_source(source), "product")
        call = relax.call_tir(product, [x, relax.const(weights)], relax.TensorType((COLUMNS,), "float32"))
        builder.emit_func_output(builder.emit(call))
    return builder.get()


def computed(mod: Any, x: Any, weights: Any) -> Any:
    return call(program(mod), x, weights, np.zeros(COLUMNS, "float32"))


def layouts(mods: list[Any]) -> list[layouts_module.Layout]:
    return [
        relaid.digits
        for mod in mods
        for _, relaid in layouts_module.find_relaid_parameters(program(mod)["main"])
    ]


def shared(*mods: Any) -> list[Any]:
    constants = Constants()
    return [constants.share(mod) for mod in mods]


@pytest.fixture
def weights() -> Any:
    return np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype("float32")


def test_what_is_but_another_shape_is_the_same_layout() -> None:
    assert (
        merge_digits(packed(2, 16))
        == merge_digits(packed(8, 16))
        == merge_digits((Digit(1, 16, 48), Digit(0, 1, 8), Digit(1, 1, 16)))
    )
    assert merge_digits(packed(2, 16)) != merge_digits(packed(2, 8))
    assert merge_digits((Digit(0, 1, 1), Digit(0, 1, 8), Digit(1, 1, 48))) == (
        Digit(0, 1, 8),
        Digit(1, 1, 48),
    )


def test_a_narrow_reader_fits_a_wide_layout_and_never_the_other_way() -> None:
    narrow, wide = merge_digits(packed(2, 8)), merge_digits(packed(4, 24))
    assert keeps_runs_contiguous(narrow, wide)
    assert not keeps_runs_contiguous(wide, narrow)
    assert not keeps_runs_contiguous(
        merge_digits(packed(2, 16)), wide
    )  # a vector would cross the border of two blocks


def test_functions_of_equal_weights_agree_and_compute_the_same(weights: Any) -> None:
    before = shared(module(weights, 2, 8), module(weights.copy(), 4, 24), module(weights, 8, 16))
    after = reduce_weight_layouts(before)
    assert layouts(after) == [
        merge_digits(packed(2, 24)),
        merge_digits(packed(2, 24)),
        merge_digits(packed(2, 16)),
    ]
    x = np.random.default_rng(1).standard_normal(ROWS).astype("float32")
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(computed(new, x, weights), computed(old, x, weights))


def test_functions_of_other_weights_keep_their_layouts(weights: Any) -> None:
    mods = shared(module(weights, 2, 8), module(weights + 1, 4, 24))
    assert layouts(reduce_weight_layouts(mods)) == [packed(2, 8), packed(4, 24)]


def test_a_layout_that_is_no_rearrangement_of_digits_is_left_alone(weights: Any) -> None:
    odd = laid_out(weights, "(k * 48 + j) // 96, (k * 48 + j) % 96", "4, 96")
    first, second = shared(odd, module(weights, 4, 24))
    assert layouts(reduce_weight_layouts([first, second])) == [packed(4, 24)]


def test_what_is_read_with_strides_of_its_own_is_left_alone(weights: Any) -> None:
    strided = laid_out(
        weights,
        "j // 8, k // 2, k % 2, j % 8",
        "6, 4, 2, 8",
        seen="row = T.match_buffer(relaid[j // 8, k // 2, k % 2, 0:8], (8,), offset_factor=1)",
        read="row[j % 8]",
    )
    assert layouts(reduce_weight_layouts(shared(strided, module(weights, 4, 24)))) == [packed(4, 24)]


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 3, 8, 16, 24, 48]))
def test_the_digits_of_an_index_are_those_of_any_other_layout(split: int, other: int, width: int) -> None:
    digits, wanted = packed(split, width), merge_digits(packed(other, 8))
    for row in range(ROWS):
        for column in range(COLUMNS):
            at = [(row, column)[d.axis] % d.high // d.low for d in digits]
            found = [layouts_module.digit_expression(digit, digits, at) for digit in wanted]
            assert found == [(row, column)[d.axis] % d.high // d.low for d in wanted]


def test_equal_constants_are_one_and_others_are_not(weights: Any) -> None:
    mods = shared(*(module(each, 2, 8) for each in (weights, weights.copy(), weights + 1)))
    found = [graph_rewriting.collect_nodes(mod["main"], tvm.ir.GenericConst)[0] for mod in mods]
    assert found[0].same_as(found[1])
    assert not found[0].same_as(found[2])


def test_constants_of_the_same_bits_and_another_type_or_shape_are_not_one() -> None:
    known = Constants()
    first = relax.const(np.zeros((2, 3), "float32"))
    assert known.find_equal_or_add(relax.const(np.zeros((2, 3), "int32"))) is not known.find_equal_or_add(
        first
    )
    assert known.find_equal_or_add(relax.const(np.zeros((3, 2), "float32"))) is not known.find_equal_or_add(
        first
    )
    assert known.find_equal_or_add(relax.const(np.zeros((2, 3), "float32"))) is first
