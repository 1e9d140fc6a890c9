"""Cumulative sums as blocks that can be scheduled: the same numbers along any axis."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tvm import relax

from mallorn.graphc.elementwise.vectorize_cumsum import VectorizeCumsum
from mallorn.workers.tvm.programs.program_blocks import blocks_of, operator_of
from tests.unit.graphc.networks import network, program, run
from tests.unit.graphc.pass_conformance import PassConformance


def summed(axis: int | None, dtype: str, *shape: int, exclusive: bool = False) -> Any:
    return network(lambda _, x: relax.op.cumsum(x, axis, exclusive=exclusive), shape, dtype=dtype)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_the_numbers_are_those_of_numpy(axis: int, dtype: str, exclusive: bool) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (6, 10, 24)).astype(dtype)
    mod = VectorizeCumsum(8)(summed(axis, dtype, *x.shape, exclusive=exclusive))
    expected = x.cumsum(axis) - (x if exclusive else 0)
    np.testing.assert_array_equal(run(mod, x), expected)


@pytest.mark.parametrize(("axis", "blocks"), [(0, (1, 5)), (2, (10, 1)), (1, (6, 1))])
def test_what_does_not_depend_on_each_other_is_a_block_of_its_own(axis: int, blocks: tuple[int, int]) -> None:
    mod = VectorizeCumsum(8)(summed(axis, "float32", 6, 10, 16))
    (block,) = found = blocks_of(program(mod))
    assert operator_of(found) == "cumulative_sum"
    assert tuple(block.extents[:2]) == blocks


class TestVectorizeCumsum(PassConformance):
    PASS = VectorizeCumsum
    BEFORE = "gv[6, 10, 16] = cumsum(x0[6, 10, 16])"
    AFTER = """
lv[6, 10, 16] = reshape(x0[6, 10, 16], [6, 10, 16])
lv1[6, 10, 16] = cumulative_sum(lv[6, 10, 16])
gv[6, 10, 16] = reshape(lv1[6, 10, 16], [6, 10, 16])
"""

    def fires(self) -> Any:
        return summed(1, "float32", 6, 10, 16)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the cumulative sum is over all axes": summed(None, "float32", 6, 10),
            "the pass does not vectorise sums of float16 to float16": summed(0, "float16", 6, 10),
        }
