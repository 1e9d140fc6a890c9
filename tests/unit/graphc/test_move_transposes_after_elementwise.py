"""Transposes of operands become one of the result, which a later transpose may cancel."""

from collections.abc import Mapping
from typing import Any

import pytest
from tvm import relax

from mallorn.graphc.layout.transposes import CancelTransposes, MoveTransposesAfterElementwise
from mallorn.workers.tvm.network.graph_recipes import FP16_GPU
from tests.fixtures.cuda import cuda_target
from tests.unit.graphc.networks import assert_same, network, weights
from tests.unit.graphc.pass_conformance import PassConformance, graph_text

IMAGE = (1, 5, 6, 8)
CHANNELS_FIRST, CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def added(axes: list[int], other_axes: list[int], size: tuple[int, ...] = (1, 4, 4, 4)) -> Any:
    def body(emit: Any, x: Any, y: Any) -> Any:
        turned = [emit(relax.op.permute_dims(x, axes)), emit(relax.op.permute_dims(y, other_axes))]
        return relax.op.add(*turned)

    return network(body, size, size)


class TestMoveTransposesAfterElementwise(PassConformance):
    PASS = MoveTransposesAfterElementwise
    LANES = ()
    RECIPE = FP16_GPU
    TARGET = cuda_target("sm_90a")
    BEFORE = """
lv[1, 8, 5, 6] = permute_dims(x0[1, 5, 6, 8])
lv1[1, 8, 5, 6] = permute_dims(x1[1, 5, 6, 8])
gv[1, 8, 5, 6] = add(lv[1, 8, 5, 6], lv1[1, 8, 5, 6])
"""
    AFTER = """
lv[1, 5, 6, 8] = add(x0[1, 5, 6, 8], x1[1, 5, 6, 8])
gv[1, 8, 5, 6] = permute_dims(lv[1, 5, 6, 8])
"""

    def fires(self) -> Any:
        return added(CHANNELS_FIRST, CHANNELS_FIRST, IMAGE)

    def leaves(self) -> Mapping[str, Any]:
        return {"an operand is not transposed like the other one": added(CHANNELS_FIRST, CHANNELS_LAST)}


CONSTANTS = {"a number": (), "channels": (8, 1, 1), "columns": (6,), "an image": (1, 8, 5, 6)}


@pytest.mark.parametrize("shape", CONSTANTS.values(), ids=CONSTANTS)
def test_constants_are_transposed_back_and_chains_cancel(shape: tuple[int, ...]) -> None:
    def body(emit: Any, x: Any) -> Any:
        turned = emit(relax.op.permute_dims(x, CHANNELS_FIRST))
        scaled = emit(relax.op.nn.relu(emit(relax.op.multiply(turned, weights(*shape)))))
        return relax.op.permute_dims(emit(relax.op.clip(scaled, 0.1, 2.0)), CHANNELS_LAST)

    mod = network(body, IMAGE)
    after, report = MoveTransposesAfterElementwise().apply(mod)
    assert report.fired == 3
    after, _ = CancelTransposes(joins_reshapes=True).apply(after)
    assert "permute_dims" not in str(after)
    assert_same(after, mod, tolerance=0)


def test_reshapes_in_a_row_and_transposes_of_single_rows_become_one_reshape() -> None:
    def body(emit: Any, x: Any) -> Any:
        turned = emit(relax.op.permute_dims(x, CHANNELS_FIRST))
        return relax.op.reshape(turned, (2, 8))

    mod = network(body, (2, 1, 1, 8))
    after, _ = CancelTransposes(joins_reshapes=True).apply(mod)
    assert graph_text(after) == "gv[2, 8] = reshape(x0[2, 1, 1, 8], [2, 8])"
    assert CancelTransposes().apply(mod)[1].fired == 0
