"""Bytes and sums of products where real numbers are needed: one function, whose scales are arguments."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.quant.fuse_linear_sums import FuseDequantize
from tests.unit.graphc import networks
from tests.unit.graphc.networks import run
from tests.unit.graphc.pass_conformance import PassConformance
from tests.unit.graphc.quantized_arithmetic import BYTES, SIZES, SUMS, Emit, calls, decoded, number, vector


def decoded_as(body: Callable[..., Any], dtype: str, *arrays: Any) -> Any:
    """The module after the pass for real numbers, which are the same but for rounding."""
    mod = networks.network(body, *(array.shape for array in arrays), dtype=dtype)
    after = networks.rewritten(FuseDequantize(), mod)
    if after is not None:
        np.testing.assert_allclose(run(after, *arrays), run(mod, *arrays), rtol=1e-5, atol=1e-4)
    return after


def test_bytes_become_real_numbers_in_one_function() -> None:
    def body(emit: Emit, x: Any, y: Any) -> Any:
        real = emit(relax.op.add(decoded(emit, x, 0.3, 7.0), vector(3, -1, 1)))
        return relax.op.divide(emit(relax.op.add(real, decoded(emit, y, 0.2, 0.0))), number(8.0))

    after = decoded_as(body, "uint8", BYTES, BYTES[::-1].copy())
    assert len(calls(after)) == 1


def test_layers_that_differ_by_their_scales_decode_by_one_function() -> None:
    def body(emit: Emit, x: Any, y: Any) -> Any:
        return relax.op.maximum(decoded(emit, x, 0.3, 7.0), decoded(emit, y, 0.2, 9.0))

    after = decoded_as(body, "uint8", BYTES, BYTES[::-1].copy())
    assert len(after.functions) == 2


def test_other_integers_may_be_places_and_are_computed_as_they_are() -> None:
    def body(emit: Emit, x: Any) -> Any:
        return relax.op.divide(emit(relax.op.astype(x, "float32")), number(3.0))

    assert decoded_as(body, "int32", SUMS) is None


def test_products_of_computed_numbers_stay_products() -> None:
    def body(emit: Emit, x: Any, y: Any) -> Any:
        return relax.op.multiply(decoded(emit, x, 0.3, 7.0), decoded(emit, y, 0.2, 0.0))

    after = decoded_as(body, "uint8", BYTES, BYTES[::-1].copy())
    assert any(getattr(call.op, "name", "") == "relax.multiply" for call in calls(after))


class TestFuseDequantize(PassConformance):
    PASS = FuseDequantize
    BEFORE = """
lv[4, 8] = astype(x0[4, 8])
gv[4, 8] = multiply(lv[4, 8], constant[])
"""
    AFTER = "gv[4, 8] = to_reals(x0[4, 8], constant[8], constant[8])"

    def fires(self) -> Any:
        def body(emit: Emit, x: Any) -> Any:
            return relax.op.multiply(emit(relax.op.astype(x, "float32")), number(0.3))

        return networks.network(body, (4, 8), dtype="uint8")

    def leaves(self) -> Mapping[str, Any]:
        def rows(emit: Emit, x: Any) -> Any:
            return relax.op.add(emit(relax.op.astype(x, "float32")), relax.const(BYTES.astype("float32")))

        return {
            "a summand is neither quantised nor a product of such data": networks.network(
                lambda _, x: relax.op.add(x, x), SIZES
            ),
            "the summands have other sizes than the sum": networks.network(rows, SIZES[-1:], dtype="uint8"),
        }

    def test_parts_of_a_sum_are_left_to_the_whole(self) -> None:
        mod = networks.network(lambda emit, x: decoded(emit, x, 0.3, 7.0), SIZES, dtype="uint8")
        _, report = self.apply(mod)
        assert report.fired == 1
        assert report.left == {"the sum is part of a larger sum, which is rewritten as a whole": 1}
