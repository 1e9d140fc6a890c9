"""Defaults tile as an engineer would: whole vectors inside, a few rows of them, work for every core."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.search.decisions import SketchRules
from workers.search.space import Choice, ChoiceKind, Sketch
from workers.tvm.defaults import PATTERNS, Location, Machine, Pattern, default_decisions

CPU = Machine(cores=4, lanes=16)
UNROLL = Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2, 3), labels=(0, 16, 64, 512), weights=(0.25,) * 4)


def tile(extent: int, width: int) -> Choice:
    return Choice(ChoiceKind.TILE, width, extent=extent, limit=64)


def place(*values: int) -> Choice:
    return Choice(ChoiceKind.LOCATION, 1, values=values)


def sketch(*choices: Choice) -> Sketch:
    return Sketch("key", "[]", choices)


MATMUL = sketch(tile(64, 4), tile(512, 4), tile(784, 2), UNROLL)


def test_a_matmul_fills_vectors_registers_and_cores() -> None:
    vector = default_decisions(MATMUL, CPU, Pattern())
    rows, columns, steps, unroll = vector[:4], vector[4:8], vector[8:10], vector[10]
    assert columns[3] == 32
    assert rows[2] == 8
    assert CPU.cores <= rows[0] * columns[0] <= 16 * CPU.cores
    assert steps == (196, 4)
    assert UNROLL.labels[unroll] == 64


def test_where_an_instruction_fills_the_vector_whole_vectors_are_tiled() -> None:
    dot = sketch(tile(64, 4), tile(32, 4), tile(1, 4), tile(392, 2), tile(1, 2), UNROLL)
    vector = default_decisions(dot, Machine(cores=4, lanes=1), Pattern())
    rows, vectors, filled = vector[:4], vector[4:8], vector[8:12]
    assert (rows[2], vectors[3], filled) == (8, 2, (1, 1, 1, 1))


def test_tiles_that_a_rule_suggests_are_taken_as_they_are() -> None:
    ours = Choice(ChoiceKind.TILE, 3, extent=12, limit=4, suggested=(3, 2, 2))
    vector = default_decisions(sketch(ours, tile(64, 4), ours, UNROLL), CPU, Pattern())
    assert (vector[:3], vector[7:10]) == ((3, 2, 2), (3, 2, 2))
    assert vector[3:7] == default_decisions(sketch(tile(64, 4)), CPU, Pattern())


def test_rows_are_taken_where_the_axis_divides_best() -> None:
    nchw = sketch(tile(1, 4), tile(128, 4), tile(28, 4), tile(28, 4), tile(3, 2), tile(3, 2))
    vector = default_decisions(nchw, CPU, Pattern())
    assert vector[4:8][2] == 8
    assert vector[12:16][3] == 28


def test_the_result_tile_fits_the_registers() -> None:
    for columns in (7, 16, 49, 64, 1000, 4096):
        vector = default_decisions(sketch(tile(64, 4), tile(columns, 4), tile(64, 2)), CPU, Pattern())
        assert vector[2] * -(-vector[7] // CPU.lanes) <= 16


@pytest.mark.parametrize(
    ("location", "expected"), [(Location.ROOT, -1), (Location.OUTER, 1), (Location.INNER, 7)]
)
def test_a_block_goes_where_the_recipe_says(location: Location, expected: int) -> None:
    assert default_decisions(sketch(place(-2, -1, 1, 7)), CPU, Pattern(location=location)) == (expected,)


def test_a_chain_of_blocks_is_never_computed_innermost() -> None:
    chain = sketch(place(-1, 1, 3), place(-1, 1, 4))
    assert default_decisions(chain, CPU, Pattern(location=Location.INNER)) == (1, 1)


def test_a_location_that_is_missing_falls_to_one_that_exists() -> None:
    assert default_decisions(sketch(place(2, 5)), CPU, Pattern(location=Location.ROOT)) == (2,)


def test_a_gpu_block_has_a_few_hundred_threads() -> None:
    vector = default_decisions(
        sketch(tile(256, 5), tile(512, 5), tile(128, 3)), Machine(1, 1, gpu=True), Pattern()
    )
    assert vector[2] * vector[7] == 256


extents = st.integers(1, 5000)
blocks = st.builds(
    lambda spatial, reduction, levels: [
        *(tile(extent, levels[0]) for extent in spatial),
        *(tile(extent, levels[1]) for extent in reduction),
    ],
    st.lists(extents, min_size=1, max_size=5),
    st.lists(extents, max_size=3),
    st.sampled_from([(4, 2), (5, 3)]),
)


@given(block=blocks, cores=st.integers(1, 192), lanes=st.sampled_from([1, 4, 8, 16]), gpu=st.booleans())
def test_every_default_is_well_formed(block: list[Choice], cores: int, lanes: int, gpu: bool) -> None:
    whole = sketch(*block, UNROLL, place(-1, 1, 2))
    rules = SketchRules(whole)
    for pattern in PATTERNS:
        vector = default_decisions(whole, Machine(cores, lanes, gpu=gpu), pattern)
        assert len(vector) == whole.width
        start = 0
        for choice in block:
            factors = vector[start : start + choice.width]
            start += choice.width
            assert prod(factors) == choice.extent
        assert rules.well_formed(np.array([vector], dtype=np.int32)).all()
