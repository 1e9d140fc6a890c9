"""What follows the reshape of a tensor function's result is computed before it."""

from collections.abc import Mapping
from typing import Any

import pytest
import tvm
from tvm import relax

from mallorn.graphc.layout.move_elementwise_before_reshape import MoveElementwiseBeforeReshape
from tests.unit.graphc.networks import assert_same, network, weights
from tests.unit.graphc.pass_conformance import PassConformance, operators

WIDE, FLAT = (2, 3, 4), (6, 4)


def after(follow: Any, flat: tuple[int, ...] = FLAT) -> Any:
    """A tensor function's result, reshaped, and what follows."""

    lowered = relax.transform.LegalizeOps()(network(lambda _, x: relax.op.add(x, x), WIDE))
    double = lowered.get_global_var("add")

    def body(emit: Any, x: Any) -> Any:
        wide = emit(relax.op.call_tir(double, [x, x], relax.TensorType(WIDE, "float32")), "wide")
        return follow(emit, emit(relax.op.reshape(wide, flat), "flat"))

    return network(body, WIDE, functions=tvm.IRModule({double: lowered[double]}))


def moved(mod: Any) -> Any:
    return MoveElementwiseBeforeReshape()(mod)


def relu(_: Any, y: Any) -> Any:
    return relax.op.nn.relu(y)


class TestMoveElementwiseBeforeReshape(PassConformance):
    PASS = MoveElementwiseBeforeReshape
    BEFORE = """
wide[2, 3, 4] = add(x0[2, 3, 4], x0[2, 3, 4])
flat[6, 4] = reshape(wide[2, 3, 4], [6, 4])
gv[6, 4] = nn.relu(flat[6, 4])
"""
    AFTER = """
wide[2, 3, 4] = add(x0[2, 3, 4], x0[2, 3, 4])
lv[2, 3, 4] = nn.relu(wide[2, 3, 4])
gv[6, 4] = reshape(lv[2, 3, 4], [6, 4])
"""

    def fires(self) -> Any:
        return after(relu)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "no reshape with known sizes computes the input": network(relu, WIDE),
            "no tensor function computes the input of the reshape": network(
                lambda emit, x: relax.op.exp(emit(relax.op.reshape(x, FLAT))), WIDE
            ),
            "the reshape does not keep or merge whole channels": after(relu, (4, 6)),
            "the other operand is neither a number nor a value per channel": after(
                lambda _, y: relax.op.add(y, weights(6, 1))
            ),
            "the other operand is computed, and is not reshaped in the same way": after(
                lambda emit, y: relax.op.add(y, emit(relax.op.nn.softmax(y)))
            ),
        }


def test_chains_of_numbers_and_channels_move_before_it() -> None:
    def follow(emit: Any, y: Any) -> Any:
        scaled = emit(relax.op.multiply(y, relax.const(0.5, "float32")))
        shifted = emit(relax.op.add(scaled, weights(1, 4)))
        half = emit(relax.op.nn.leakyrelu(shifted, 0.1))
        return relax.op.maximum(shifted, half)

    mod = after(follow)
    after_pass = assert_same(moved(mod), mod, tolerance=0)
    assert operators(after_pass) == ["add", "multiply", "add", "nn.leakyrelu", "maximum", "reshape"]


@pytest.mark.parametrize(
    "follow",
    [
        lambda _, y: relax.op.add(y, weights(6, 4)),
        lambda _, y: relax.op.nn.softmax(y),
    ],
    ids=["a whole constant", "not element-wise"],
)
def test_others_stay_behind_it(follow: Any) -> None:
    mod = after(follow)
    assert operators(moved(mod)) == operators(mod)


def test_channels_that_were_groups_move_before_it() -> None:
    def follow(emit: Any, y: Any) -> Any:
        scaled = emit(relax.op.multiply(y, weights(1, 12)))
        return relax.op.nn.relu(emit(relax.op.add(scaled, weights(1))))

    mod = after(follow, (2, 12))
    expected = ["add", "multiply", "add", "nn.relu", "reshape"]
    assert operators(assert_same(moved(mod), mod, tolerance=0)) == expected
