"""What is rounded to steps of 8 bits: one function, whose scales and zero points are arguments."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tvm import relax

from mallorn.graphc.quant.fuse_linear_sums import FuseRequantize
from tests.unit.graphc import networks
from tests.unit.graphc.networks import run
from tests.unit.graphc.pass_conformance import PassConformance
from tests.unit.graphc.quantized_arithmetic import (
    BYTES,
    RNG,
    SIZES,
    SUMS,
    Emit,
    calls,
    decoded,
    encoded,
    number,
    product,
    vector,
)


def changed(body: Callable[..., Any], dtype: str, *arrays: Any) -> Any:
    """The module after the pass, whose numbers are a step apart at most."""
    mod = networks.network(body, *(array.shape for array in arrays), dtype=dtype)
    after = networks.rewritten(FuseRequantize(), mod)
    apart = np.abs(run(after, *arrays).astype("int32") - run(mod, *arrays).astype("int32"))
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.02
    return after


@pytest.mark.parametrize("zero", [0, 1, 128])
def test_what_follows_a_product_is_one_function_of_its_sums(zero: int) -> None:
    after = changed(lambda emit, x: encoded(emit, product(emit, x), 0.25, zero), "int32", SUMS)
    assert len(calls(after)) == 1


def test_layers_that_differ_by_their_scales_are_the_same_function() -> None:
    def both(emit: Emit, x: Any, y: Any) -> Any:
        first = emit(encoded(emit, product(emit, x), 0.25))
        second = emit(encoded(emit, product(emit, y, seed=5), 0.5))
        return relax.op.maximum(first, second)

    after = changed(both, "int32", SUMS, SUMS[::-1].copy())
    assert len(after.functions) == 2


@pytest.mark.parametrize("zero", [0, 100])
def test_activations_become_limits_of_the_steps(zero: int) -> None:
    def body(emit: Emit, x: Any) -> Any:
        real = emit(relax.op.nn.relu(product(emit, x)))
        return encoded(emit, emit(relax.op.minimum(real, number(6.0))), 0.05, zero)

    after = changed(body, "int32", SUMS)
    assert len(calls(after)) == 1


def test_a_sum_of_bytes_is_a_function_of_bytes() -> None:
    def body(emit: Emit, x: Any, y: Any) -> Any:
        both = emit(relax.op.add(decoded(emit, x, 0.3, 7.0), decoded(emit, y, 0.2, 0.0)))
        return encoded(emit, both, 0.41, 3.0)

    after = changed(body, "uint8", BYTES, BYTES[::-1].copy())
    assert [str(arg.ty.dtype) for arg in calls(after)[0].args[1].fields[:2]] == ["uint8", "uint8"]


def test_limits_of_bytes_are_read_as_bytes() -> None:
    """As of an activation between two encodings: the first still ends in bytes."""

    def body(emit: Emit, x: Any) -> Any:
        first = emit(encoded(emit, product(emit, x), 0.25, 9.0))
        limited = emit(relax.op.maximum(first, relax.const(np.uint8(9))))
        return encoded(emit, decoded(emit, limited, 0.25, 9.0), 0.3)

    after = changed(body, "int32", SUMS)
    assert [str(call.ty.dtype) for call in calls(after)] == ["uint8", "uint8"]


def test_what_another_operator_reads_too_is_computed_as_it_is() -> None:
    def body(emit: Emit, x: Any) -> Any:
        real = product(emit, x)
        steps_ = emit(relax.op.astype(emit(encoded(emit, real, 0.25)), "float32"))
        return relax.op.add(steps_, real)

    mod = networks.network(body, SIZES, dtype="int32")
    after = networks.rewritten(FuseRequantize(), mod)
    np.testing.assert_allclose(run(after, SUMS), run(mod, SUMS), atol=1.0)
    assert any(getattr(call.op, "name", "") == "relax.add" for call in calls(after))


def test_numbers_along_another_axis_are_multiplied_before() -> None:
    rows = relax.const(RNG.uniform(1, 2, (1, 3, 1, 1)).astype("float32"))

    def body(emit: Emit, x: Any) -> Any:
        return encoded(emit, emit(relax.op.multiply(emit(relax.op.astype(x, "float32")), rows)), 300.0)

    after = changed(body, "int32", SUMS)
    assert any(getattr(call.op, "name", "") == "relax.multiply" for call in calls(after))


def test_halves_go_to_the_even_step_and_what_is_far_out_to_the_limits() -> None:
    values = np.zeros(SIZES, "int32")
    values.reshape(-1)[:8] = [1, 3, 5, -1, 509, 511, 2**30, -(2**30)]

    def body(emit: Emit, x: Any) -> Any:
        return encoded(emit, emit(relax.op.multiply(emit(relax.op.astype(x, "float32")), number(0.5))), 1.0)

    after = networks.rewritten(FuseRequantize(), networks.network(body, SIZES, dtype="int32"))
    assert run(after, values).reshape(-1)[:8].tolist() == [0, 2, 2, 0, 254, 255, 255, 0]


class TestFuseRequantize(PassConformance):
    PASS = FuseRequantize
    BEFORE = """
lv[4, 8] = multiply(x0[4, 8], constant[])
lv1[4, 8] = round(lv[4, 8])
lv2[4, 8] = add(lv1[4, 8], constant[])
lv3[4, 8] = maximum(lv2[4, 8], constant[])
lv4[4, 8] = minimum(lv3[4, 8], constant[])
lv5[4, 8] = astype(lv4[4, 8])
lv6[4, 8] = astype(lv5[4, 8])
gv[4, 8] = astype(lv6[4, 8])
"""
    AFTER = """
lv6[4, 8] = to_steps(x0[4, 8], constant[8], constant[8])
gv[4, 8] = astype(lv6[4, 8])
"""
    TOLERANCE = 0.02  # a step of the largest

    def fires(self) -> Any:
        def body(emit: Emit, x: Any) -> Any:
            return relax.op.astype(emit(encoded(emit, x, 0.25, 3.0)), "float32")

        return networks.network(body, (4, 8))

    def leaves(self) -> Mapping[str, Any]:
        def limits(emit: Emit, x: Any) -> Any:
            return relax.op.astype(emit(relax.op.astype(emit(relax.op.round(x)), "int32")), "uint8")

        def zeros(emit: Emit, x: Any) -> Any:
            moved = emit(relax.op.add(emit(relax.op.round(x)), vector(1, 3, 4)))
            within = emit(relax.op.minimum(emit(relax.op.maximum(moved, number(0.0))), number(255.0)))
            return relax.op.astype(emit(relax.op.astype(within, "int32")), "uint8")

        def rows(emit: Emit, x: Any, y: Any) -> Any:
            return encoded(emit, emit(relax.op.add(x, y)), 0.25)

        cast = networks.network(lambda _, x: relax.op.astype(x, "uint8"), SIZES)
        return {
            "the result is float16, not uint8": networks.network(
                lambda _, x: relax.op.astype(x, "float16"), SIZES
            ),
            "no rounding computes the input": cast,
            "the rounded value is not clipped to the limits of the type": networks.network(limits, SIZES),
            "the zero point or the limits are not single numbers": networks.network(zeros, SIZES),
            "the summands have other sizes than the sum": networks.network(rows, SIZES, SIZES[-1:]),
        }
