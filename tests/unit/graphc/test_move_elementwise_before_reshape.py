"""What follows the reshape of a tensor function's result is computed before it."""

from collections.abc import Mapping
from typing import Any

import pytest
import tvm
from tvm import relax

from mallorn.graphc.layout.move_elementwise_before_reshape import MoveElementwiseBeforeReshape
from tests.unit.graphc.networks import difference, network, random, run, weights
from tests.unit.graphc.pass_conformance import PassConformance

WIDE, FLAT = (2, 3, 4), (6, 4)


def after(follow: Any, flat: tuple[int, ...] = FLAT) -> Any:
    """A tensor function's result, reshaped, and what follows."""

    def body(emit: Any, x: Any) -> Any:
        doubled = emit(relax.op.call_tir(double, [x, x], relax.TensorType(WIDE, "float32")), "wide")
        return follow(emit, emit(relax.op.reshape(doubled, flat), "flat"))

    mod = network(lambda emit, x: relax.op.add(x, x), WIDE)
    lowered = relax.transform.LegalizeOps()(mod)
    double = next(var for var in lowered.functions if var.name_hint == "add")
    builder = relax.BlockBuilder(tvm.IRModule({double: lowered[double]}))
    x = relax.Var("x", relax.TensorType(WIDE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(result)
    return builder.get()


def order(mod: Any) -> list[str]:
    bindings = mod["main"].body.blocks[0].bindings
    return [binding.value.op.name.removeprefix("relax.") for binding in bindings]


def moved(mod: Any) -> Any:
    return MoveElementwiseBeforeReshape()(mod)


def relu(_: Any, y: Any) -> Any:
    return relax.op.nn.relu(y)


class TestMoveElementwiseBeforeReshape(PassConformance):
    PASS = MoveElementwiseBeforeReshape
    BEFORE = """
wide[2, 3, 4] = add(x[2, 3, 4], x[2, 3, 4])
flat[6, 4] = reshape(wide[2, 3, 4], [6, 4])
gv[6, 4] = nn.relu(flat[6, 4])
"""
    AFTER = """
wide[2, 3, 4] = add(x[2, 3, 4], x[2, 3, 4])
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
    assert order(moved(mod)) == ["call_tir", "multiply", "add", "nn.leakyrelu", "maximum", "reshape"]
    x = random(*WIDE)
    assert difference(run(moved(mod), x), run(mod, x)) == 0


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
    assert order(moved(mod)) == order(mod)


def test_channels_that_were_groups_move_before_it() -> None:
    def follow(emit: Any, y: Any) -> Any:
        scaled = emit(relax.op.multiply(y, weights(1, 12)))
        return relax.op.nn.relu(emit(relax.op.add(scaled, weights(1))))

    mod = after(follow, (2, 12))
    assert order(moved(mod)) == ["call_tir", "multiply", "add", "nn.relu", "reshape"]
    x = random(*WIDE)
    assert difference(run(moved(mod), x), run(mod, x)) == 0
