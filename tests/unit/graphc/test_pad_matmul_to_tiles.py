"""Products whose rows or columns cannot be tiled are computed a little larger: the same numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from mallorn.graphc.core.graph_rewriting import ROWS, round_up_columns, round_up_rows
from mallorn.graphc.matmul.fuse_transposes_into_batched_matmul import FuseTransposesIntoBatchedMatmul
from mallorn.graphc.matmul.pad_matmul_to_tiles import PadMatmulToTiles
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc.networks import HASWELL, assert_same, network, program, rewritten, weights
from tests.unit.graphc.pass_conformance import PassConformance


def product(rows: tuple[int, ...], inputs: int, outputs: int) -> Any:
    return network(lambda _, x: relax.op.matmul(x, weights(inputs, outputs)), (*rows, inputs))


def stacked(rows: int, outputs: int) -> Any:
    """As Winograd's algorithm multiplies: a matrix of weights for each matrix of data."""
    return network(lambda _, x: relax.op.matmul(x, weights(3, 24, outputs)), (3, rows, 24))


def scores(tokens: int, size: int = 8) -> Any:
    shape = (2, tokens, size)

    def body(emit: Any, x: Any, w: Any) -> Any:
        return relax.op.matmul(emit(relax.op.negative(x)), emit(relax.op.permute_dims(w, [0, 2, 1])))

    return network(body, shape, shape)


@given(st.integers(1, 5000))
def test_a_few_rows_more_can_be_tiled(rows: int) -> None:
    found = round_up_rows(rows)
    assert found >= rows
    assert found <= rows + max(1, rows // 16)
    assert found <= ROWS[-1] or any(found % tile == 0 for tile in ROWS)


@given(st.integers(1, 100_000), st.sampled_from([4, 8, 16]))
def test_columns_fill_vectors_where_that_wastes_little(columns: int, lanes: int) -> None:
    found = round_up_columns(columns, lanes)
    assert found == columns or (found % lanes == 0 and columns < found < columns + lanes)
    assert columns <= 2 * lanes or found % lanes == 0


@pytest.mark.parametrize(
    "mod",
    [product(rows, 24, outputs) for rows in ((17,), (1, 101), (2, 3, 19)) for outputs in (32, 40, 101)]
    + [stacked(12, 24), stacked(17, 40)],
)
def test_products_with_weights_and_stacks_of_them_stay_what_they_were(mod: Any) -> None:
    assert_same(rewritten(PadMatmulToTiles(16), mod), mod)


class TestPadMatmulToTiles(PassConformance):
    PASS = PadMatmulToTiles
    BEFORE = "gv[17, 32] = matmul(x0[17, 24], constant[24, 32])"
    AFTER = "gv[17, 32] = whole_matmul(x0[17, 24], constant[24, 32])"

    def fires(self) -> Any:
        return product((17,), 24, 32)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the sizes of the product can be tiled already": product((128,), 24, 64),
            "the second factor of the product is computed": network(
                lambda _, x, w: relax.op.matmul(x, w), (17, 24), (24, 32)
            ),
            "the product is a stack whose columns fill vectors": stacked(17, 32),
            "the factors of the product are stacks of different sizes": network(
                lambda _, x: relax.op.matmul(x, weights(3, 24, 20)), (17, 24)
            ),
            "the result is float16, not float32": network(
                lambda _, x: relax.op.matmul(x, relax.const(np.ones((24, 32), "float16"))),
                (17, 24),
                dtype="float16",
            ),
        }


def test_products_of_computed_factors_stay_what_they_were() -> None:
    mod = scores(101)
    assert_same(rewritten(FuseTransposesIntoBatchedMatmul(16), mod), mod)


def test_their_sizes_count_only_where_vectors_are_known() -> None:
    assert rewritten(FuseTransposesIntoBatchedMatmul(), scores(101)) is None
    assert rewritten(FuseTransposesIntoBatchedMatmul(16), scores(64)) is None


def test_the_product_is_tiled_by_its_whole_sizes() -> None:
    after = rewritten(PadMatmulToTiles(8), product((101,), 24, 20))
    sketches = design_space(tvm.ir.save_json(program(after, "whole_matmul")), HASWELL)
    assert {102, 24} <= {choice.extent for sketch in sketches for choice in sketch.choices}
