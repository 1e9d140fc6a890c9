"""Transposes that move the last axis, tile by tile: nothing but places changes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.graphc.layout.transposes import TileTransposes
from mallorn.workers.tvm.programs.program_blocks import blocks_of, operator_of
from tests.unit.graphc import networks
from tests.unit.graphc.networks import HASWELL, program, rewritten, run, scheduled
from tests.unit.graphc.pass_conformance import PassConformance, graph_text


def network(shape: tuple[int, ...], axes: list[int] | None, dtype: str = "float32") -> Any:
    return networks.network(lambda _, x: relax.op.permute_dims(x, axes), shape, dtype=dtype)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((32, 48), None),
        ((2, 3, 16, 32), [0, 1, 3, 2]),
        ((1, 32, 5, 16), [0, 2, 3, 1]),
        ((16, 3, 32), [2, 1, 0]),
    ],
    ids=str,
)
def test_every_number_goes_where_it_belongs(shape: tuple[int, ...], axes: list[int] | None) -> None:
    after = rewritten(TileTransposes(), network(shape, axes))
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    assert np.array_equal(run(after, x), np.transpose(x, axes))


class TestTileTransposes(PassConformance):
    PASS = TileTransposes
    BEFORE = "gv[48, 32] = permute_dims(x0[32, 48])"
    AFTER = "gv[48, 32] = transpose_tiles(x0[32, 48])"

    def fires(self) -> Any:
        return network((32, 48), None)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the transpose keeps the last axis in place": network((32, 16, 32), [1, 0, 2]),
            "the sizes of the swapped axes are not multiples of 16": network((32, 24), None),
            "the result is float16, not float32": network((32, 32), None, dtype="float16"),
        }


def test_columns_that_fill_no_tiles_stay_as_they_are() -> None:
    assert rewritten(TileTransposes(), network((24, 32), None)) is None


def test_what_two_operators_read_is_moved_once() -> None:
    def body(emit: Any, x: Any) -> Any:
        return relax.op.add(*(emit(relax.op.permute_dims(x)) for _ in range(2)))

    with tvm.target.Target(HASWELL):
        after, report = TileTransposes().apply(networks.network(body, (32, 48)))
    assert report.fired == 2
    assert graph_text(after).count("transpose_tiles") == 1


def test_metaschedule_gives_tiles_to_the_cores_and_leaves_them_whole() -> None:
    after = rewritten(TileTransposes(), network((1, 128, 4, 64), [0, 2, 3, 1]))
    mod = program(after, "transpose_tiles")
    assert operator_of(blocks_of(mod)) == "layout"
    text = scheduled(mod, HASWELL).script()
    assert (text.count("T.parallel(128)"), text.count("T.vectorized(16)"), text.count("T.unroll(16)")) == (
        1,
        1,
        1,
    )
