"""A pointwise convolution and the depthwise one behind it: one function, the same numbers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.core.values.machine import assume_typical_cpu
from mallorn.graphc.conv.fuse_pointwise_into_depthwise import FusePointwiseIntoDepthwise
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.searchers.space import Sketch
from mallorn.workers.features.feature_extractor import AlignedDecisions
from mallorn.workers.tvm.programs.program_blocks import blocks_of, operator_of, tensor_args
from mallorn.workers.tvm.programs.workload_key import rename_blocks_canonically
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc import networks
from tests.unit.graphc.networks import (
    HASWELL,
    NHWC,
    assert_same,
    call,
    difference,
    fused,
    network,
    program,
    random,
    weights,
)
from tests.unit.graphc.pass_conformance import PassConformance, operators

DATA, INNER = (2, 8, 12, 6), 48
Between = Callable[[Any, Any], Any]


def scalar(value: float) -> Any:
    return relax.const(value, "float32")


def clipped(emit: Any, x: Any) -> Any:
    return relax.op.minimum(emit(relax.op.maximum(emit(biased(emit, x)), scalar(0))), scalar(6))


def biased(_: Any, x: Any) -> Any:
    return relax.op.add(x, weights(1, 1, 1, INNER))


def scaled(emit: Any, x: Any) -> Any:
    return relax.op.nn.relu(emit(relax.op.multiply(emit(biased(emit, x)), scalar(-1.5))))


def nothing(_: Any, x: Any) -> Any:
    return x


def pair(between: Between = clipped, *, pointwise: Any = None, kernel: int = 3, **attrs: Any) -> Any:
    """A module of both, with this between them."""

    def body(emit: Any, x: Any) -> Any:
        first = emit(relax.op.nn.conv2d(x, weights(1, 1, 6, INNER), **NHWC, **(pointwise or {})))
        middle = emit(between(emit, first)) if between is not nothing else first
        attributes = {"groups": INNER, **attrs}
        inner = INNER // attributes["groups"]
        return relax.op.nn.conv2d(middle, weights(kernel, kernel, inner, INNER), **NHWC, **attributes)

    return network(body, DATA)


def rewritten(mod: Any, *lanes: int) -> Any:
    """The module after the pass; None where it left the module alone."""
    after = relax.transform.DeadCodeElimination()(FusePointwiseIntoDepthwise(*lanes)(mod))
    return None if len(after.functions) == len(mod.functions) else after


@pytest.mark.pairwise
@pytest.mark.parametrize("between", [clipped, biased, scaled, nothing])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (1, 2)], ids=str)
@pytest.mark.parametrize(
    ("kernel", "padding"), [(3, 1), (3, 0), (5, (2, 1, 0, 3)), (2, (0, 1, 1, 0))], ids=str
)
def test_the_numbers_are_those_of_both(between: Between, strides: Any, kernel: int, padding: Any) -> None:
    mod = pair(between, kernel=kernel, strides=strides, padding=padding)
    after = assert_same(rewritten(mod), mod)
    assert operators(after) == ["strips"]


def read_twice() -> Any:
    def body(emit: Any, x: Any) -> Any:
        first = emit(relax.op.nn.conv2d(x, weights(1, 1, 6, INNER), **NHWC))
        second = relax.op.nn.conv2d(first, weights(3, 3, 1, INNER), padding=1, groups=INNER, **NHWC)
        return relax.op.add(first, emit(second))

    return network(body, DATA)


def shown() -> Any:
    """What is between is a result of the network, too."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(DATA, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit_output(relax.op.nn.conv2d(x, weights(1, 1, 6, INNER), **NHWC))
            kernel = weights(3, 3, 1, INNER)
            second = builder.emit_output(relax.op.nn.conv2d(first, kernel, groups=INNER, **NHWC))
        builder.emit_func_output(relax.Tuple([first, second]))
    return builder.get()


def by_rows(_: Any, x: Any) -> Any:
    return relax.op.add(x, weights(1, 8, 1, 1))


def squared(_: Any, x: Any) -> Any:
    return relax.op.multiply(x, x)


def exponential(_: Any, x: Any) -> Any:
    return relax.op.exp(x)


@pytest.mark.parametrize(
    "mod",
    [
        pair(by_rows),
        pair(squared),
        pair(exponential),
        pair(groups=1),
        pair(groups=24),
        pair(dilation=2),
        pair(pointwise={"strides": 2}),
        pair(pointwise={"padding": 1}),
        read_twice(),
        shown(),
    ],
    ids=[
        "a sum by rows",
        "a product with itself",
        "an operator that is not known",
        "one group",
        "groups of two",
        "dilation",
        "a pointwise one with strides",
        "a pointwise one with padding",
        "read twice",
        "a result, too",
    ],
)
def test_others_stay_as_they_are(mod: Any) -> None:
    assert rewritten(mod) is None


def test_channels_that_fill_no_vectors_stay_as_they_are() -> None:
    def body(emit: Any, x: Any) -> Any:
        first = emit(relax.op.nn.conv2d(x, weights(1, 1, 6, 24), **NHWC))
        return relax.op.nn.conv2d(first, weights(3, 3, 1, 24), groups=24, **NHWC)

    assert rewritten(network(body, DATA)) is None


ALONE = "no pointwise convolution computes the input for this operator only"


class TestFusePointwiseIntoDepthwise(PassConformance):
    PASS = FusePointwiseIntoDepthwise
    BEFORE = """
lv[2, 8, 12, 48] = nn.conv2d(x0[2, 8, 12, 6], constant[1, 1, 6, 48])
lv1[2, 8, 12, 48] = nn.relu(lv[2, 8, 12, 48])
gv[2, 8, 12, 48] = nn.conv2d(lv1[2, 8, 12, 48], constant[3, 3, 1, 48])
"""
    AFTER = """
gv[2, 8, 12, 48] = strips(x0[2, 8, 12, 6], constant[1, 1, 6, 48], constant[3, 3, 1, 48])
"""

    def fires(self) -> Any:
        return pair(lambda _, x: relax.op.nn.relu(x), padding=1)

    def leaves(self) -> Mapping[str, Any]:
        operand = "an operand in between varies other than by channel"
        return {ALONE: read_twice(), operand: pair(by_rows)}


def followed(*lanes: int, **attrs: Any) -> Any:
    """The tensor function of both, and of a sum and an activation behind them."""

    def body(emit: Any, x: Any) -> Any:
        first = emit(clipped(emit, emit(relax.op.nn.conv2d(x, weights(1, 1, 6, INNER), **NHWC))))
        second = relax.op.nn.conv2d(first, weights(3, 3, 1, INNER), groups=INNER, **NHWC, **attrs)
        return clipped(emit, emit(second))

    after = rewritten(network(body, DATA), *lanes)
    return rename_blocks_canonically(program(fused(after), "fused_strips"))


def sketched(mod: Any) -> Sketch:
    (sketch,) = design_space(tvm.ir.save_json(mod), HASWELL)
    return sketch


def scheduled(mod: Any, decisions: Sequence[int]) -> Any:
    return networks.scheduled(mod, HASWELL, decisions)


def suggested(mod: Any) -> tuple[int, ...]:
    return ranked([sketched(mod)], (), assume_typical_cpu(cores=2, lanes=8), 1)[0].decisions


def assert_same_numbers(after: Any, mod: Any) -> None:
    arrays = [random(*shape) for _, _, shape in tensor_args(mod)]
    assert difference(call(after, *arrays), call(mod, *arrays)) <= 1e-5


# Channels of a strip in three factors; rows, a row, one of the first product, its inputs in two; unrolling.
SEVERAL = {1: [1, 3, 1, 4, 2, 2, 6, 4, 3, 3, 2, 0], 2: [3, 1, 1, 2, 2, 1, 6, 2, 6, 1, 6, 2]}


@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("several", [False, True], ids=["as suggested", "several strips"])
def test_strips_give_the_same_numbers(strides: int, several: bool) -> None:
    mod = followed(padding=1, strides=strides)
    assert_same_numbers(scheduled(mod, SEVERAL[strides] if several else suggested(mod)), mod)


def test_one_loop_over_strips_and_channels_holds_everything() -> None:
    mod = followed(padding=1)
    text = scheduled(mod, suggested(mod)).script()
    assert text.count("T.parallel(") == 1
    inside = text[text.index("T.parallel(") :].splitlines()[1:]
    assert sum("T.sblock(" in line for line in inside) == 6  # two sums begin apart; the last is what follows
    assert all(line.startswith(" " * 12) for line in inside if line.strip())


def test_searchers_and_models_take_strips_like_any_sketch() -> None:
    mod = followed(padding=1)
    assert operator_of(blocks_of(mod)) == "matmul-depthwise_conv2d"
    sketch = sketched(mod)
    rows = SketchRules(sketch).sample(np.random.default_rng(0), 8)
    described = AlignedDecisions().extract_rows(sketch, (20.0, 1.0, 3.0, 3.0, 5.0, 3.0), rows)
    assert np.isfinite(described).all()
    assert len(np.unique(described, axis=0)) > 1


def test_strips_of_narrow_vectors_give_the_same_numbers() -> None:
    mod = followed(8, padding=1)
    assert_same_numbers(scheduled(mod, suggested(mod)), mod)
    channels, vectors = (sketched(each).choices[0].extent for each in (mod, followed(padding=1)))
    assert channels == 2 * vectors, "twice as many vectors of half the width"
