"""What is rounded to steps of 8 bits: one function, whose scales and zero points are arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from graphc.quant import fuse_requantize
from tests.unit.graphc import networks
from tests.unit.graphc.networks import run

SIZES = 2, 3, 4, 8
RNG = np.random.default_rng(7)
SUMS = RNG.integers(-20_000, 20_000, SIZES).astype("int32")
BYTES = RNG.integers(0, 256, SIZES).astype("uint8")
Emit = Callable[..., Any]


def number(value: float) -> Any:
    return relax.const(value, "float32")


def vector(seed: int, least: float, most: float) -> Any:
    values = np.random.default_rng(seed).uniform(least, most, (1, 1, 1, SIZES[-1]))
    return relax.const(values.astype("float32"))


def encoded(emit: Emit, value: Any, scale: float, zero: float = 0.0) -> Any:
    """As the recipe writes it."""
    whole = emit(relax.op.round(emit(relax.op.multiply(value, number(1 / scale)))))
    moved = emit(relax.op.add(whole, number(zero))) if zero else whole
    within = emit(relax.op.minimum(emit(relax.op.maximum(moved, number(0.0))), number(255.0)))
    return relax.op.astype(emit(relax.op.astype(within, "int32")), "uint8")


def decoded(emit: Emit, value: Any, scale: float, zero: float) -> Any:
    less = emit(relax.op.subtract(emit(relax.op.astype(value, "float32")), number(zero)))
    return emit(relax.op.multiply(less, number(scale)))


def product(emit: Emit, sums: Any, seed: int = 0) -> Any:
    """What stands behind a product: the zero point's part, scales of each output, a bias."""
    columns = np.random.default_rng(seed).integers(-99, 99, SIZES[-1]).astype("int32")
    less = emit(relax.op.subtract(sums, relax.const(columns)))
    real = emit(relax.op.multiply(emit(relax.op.astype(less, "float32")), vector(seed, 0.001, 0.002)))
    return emit(relax.op.add(real, vector(seed + 1, -9, 9)))


def changed(body: Callable[..., Any], dtype: str, *arrays: Any) -> Any | None:
    mod = networks.network(body, *(array.shape for array in arrays), dtype=dtype)
    after = networks.rewritten(fuse_requantize.steps(), mod)
    if after is not None:
        apart = np.abs(run(after, *arrays).astype("int32") - run(mod, *arrays).astype("int32"))
        assert apart.max() <= 1
        assert (apart > 0).mean() < 0.02
    return after


def calls(mod: Any) -> list[Any]:
    """All calls that compute the result."""
    found: list[Any] = []
    with tvm.transform.PassContext(opt_level=3):
        kept = relax.transform.DeadCodeElimination()(mod)
    relax.analysis.post_order_visit(
        kept["main"], lambda node: found.append(node) if isinstance(node, relax.Call) else None
    )
    return found


@pytest.mark.parametrize("zero", [0, 1, 128])
def test_what_follows_a_product_is_one_function_of_its_sums(zero: int) -> None:
    after = changed(lambda emit, x: encoded(emit, product(emit, x), 0.25, zero), "int32", SUMS)
    assert after is not None
    assert len(calls(after)) == 1


def test_layers_that_differ_by_their_scales_are_the_same_function() -> None:
    def both(emit: Emit, x: Any, y: Any) -> Any:
        first = emit(encoded(emit, product(emit, x), 0.25))
        second = emit(encoded(emit, product(emit, y, seed=5), 0.5))
        return relax.op.maximum(first, second)

    after = changed(both, "int32", SUMS, SUMS[::-1].copy())
    assert after is not None
    assert len(after.functions) == 2


@pytest.mark.parametrize("zero", [0, 100])
def test_activations_become_limits_of_the_steps(zero: int) -> None:
    def body(emit: Emit, x: Any) -> Any:
        real = emit(relax.op.nn.relu(product(emit, x)))
        return encoded(emit, emit(relax.op.minimum(real, number(6.0))), 0.05, zero)

    after = changed(body, "int32", SUMS)
    assert after is not None
    assert len(calls(after)) == 1


def test_a_sum_of_bytes_is_a_function_of_bytes() -> None:
    def body(emit: Emit, x: Any, y: Any) -> Any:
        both = emit(relax.op.add(decoded(emit, x, 0.3, 7.0), decoded(emit, y, 0.2, 0.0)))
        return encoded(emit, both, 0.41, 3.0)

    after = changed(body, "uint8", BYTES, BYTES[::-1].copy())
    assert after is not None
    assert [str(arg.ty.dtype) for arg in calls(after)[0].args[1].fields[:2]] == ["uint8", "uint8"]


def test_limits_of_bytes_are_read_as_bytes() -> None:
    """As of an activation between two encodings: the first still ends in bytes."""

    def body(emit: Emit, x: Any) -> Any:
        first = emit(encoded(emit, product(emit, x), 0.25, 9.0))
        limited = emit(relax.op.maximum(first, relax.const(np.uint8(9))))
        return encoded(emit, decoded(emit, limited, 0.25, 9.0), 0.3)

    after = changed(body, "int32", SUMS)
    assert after is not None
    assert [str(call.ty.dtype) for call in calls(after)] == ["uint8", "uint8"]


def test_what_another_operator_reads_too_is_computed_as_it_is() -> None:
    def body(emit: Emit, x: Any) -> Any:
        real = product(emit, x)
        steps_ = emit(relax.op.astype(emit(encoded(emit, real, 0.25)), "float32"))
        return relax.op.add(steps_, real)

    mod = networks.network(body, SIZES, dtype="int32")
    after = networks.rewritten(fuse_requantize.steps(), mod)
    assert after is not None
    np.testing.assert_allclose(run(after, SUMS), run(mod, SUMS), atol=1.0)
    assert any(getattr(call.op, "name", "") == "relax.add" for call in calls(after))


def test_numbers_along_another_axis_are_multiplied_before() -> None:
    rows = relax.const(RNG.uniform(1, 2, (1, 3, 1, 1)).astype("float32"))

    def body(emit: Emit, x: Any) -> Any:
        return encoded(emit, emit(relax.op.multiply(emit(relax.op.astype(x, "float32")), rows)), 300.0)

    after = changed(body, "int32", SUMS)
    assert after is not None
    assert any(getattr(call.op, "name", "") == "relax.multiply" for call in calls(after))


def decoded_as(body: Callable[..., Any], dtype: str, *arrays: Any) -> Any | None:
    """The module after the pass for real numbers, which are the same but for rounding."""
    mod = networks.network(body, *(array.shape for array in arrays), dtype=dtype)
    after = networks.rewritten(fuse_requantize.reals(), mod)
    if after is not None:
        np.testing.assert_allclose(run(after, *arrays), run(mod, *arrays), rtol=1e-5, atol=1e-4)
    return after


def test_bytes_become_real_numbers_in_one_function() -> None:
    def body(emit: Emit, x: Any, y: Any) -> Any:
        real = emit(relax.op.add(decoded(emit, x, 0.3, 7.0), vector(3, -1, 1)))
        return relax.op.divide(emit(relax.op.add(real, decoded(emit, y, 0.2, 0.0))), number(8.0))

    after = decoded_as(body, "uint8", BYTES, BYTES[::-1].copy())
    assert after is not None
    assert len(calls(after)) == 1


def test_layers_that_differ_by_their_scales_decode_by_one_function() -> None:
    def body(emit: Emit, x: Any, y: Any) -> Any:
        return relax.op.maximum(decoded(emit, x, 0.3, 7.0), decoded(emit, y, 0.2, 9.0))

    after = decoded_as(body, "uint8", BYTES, BYTES[::-1].copy())
    assert after is not None
    assert len(after.functions) == 2


def test_other_integers_may_be_places_and_are_computed_as_they_are() -> None:
    def body(emit: Emit, x: Any) -> Any:
        return relax.op.divide(emit(relax.op.astype(x, "float32")), number(3.0))

    assert decoded_as(body, "int32", SUMS) is None


def test_products_of_computed_numbers_stay_products() -> None:
    def body(emit: Emit, x: Any, y: Any) -> Any:
        return relax.op.multiply(decoded(emit, x, 0.3, 7.0), decoded(emit, y, 0.2, 0.0))

    after = decoded_as(body, "uint8", BYTES, BYTES[::-1].copy())
    assert after is not None
    assert any(getattr(call.op, "name", "") == "relax.multiply" for call in calls(after))


def test_halves_go_to_the_even_step_and_what_is_far_out_to_the_limits() -> None:
    values = np.zeros(SIZES, "int32")
    values.reshape(-1)[:8] = [1, 3, 5, -1, 509, 511, 2**30, -(2**30)]

    def body(emit: Emit, x: Any) -> Any:
        return encoded(emit, emit(relax.op.multiply(emit(relax.op.astype(x, "float32")), number(0.5))), 1.0)

    after = networks.rewritten(fuse_requantize.steps(), networks.network(body, SIZES, dtype="int32"))
    assert after is not None
    assert run(after, values).reshape(-1)[:8].tolist() == [0, 2, 2, 0, 254, 255, 255, 0]
