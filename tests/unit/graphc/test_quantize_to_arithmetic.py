"""Decoding and encoding that is left: plain arithmetic."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tvm import relax

from mallorn.graphc.quant.quantize_to_arithmetic import QuantizeToArithmetic
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from tests.unit.graphc.networks import network, random, run
from tests.unit.graphc.pass_conformance import PassConformance
from tests.unit.graphc.quantized_arithmetic import Emit, dequantized, quantized
from tests.unit.graphc.test_int8_dot_products import WITHOUT


class TestQuantizeToArithmetic(PassConformance):
    PASS = QuantizeToArithmetic
    BEFORE = "gv[2, 8] = dequantize(x0[2, 8], constant[], constant[])"
    AFTER = """
lv[2, 8] = astype(x0[2, 8])
lv1[2, 8] = subtract(lv[2, 8], constant[])
gv[2, 8] = multiply(lv1[2, 8], constant[])
"""

    def fires(self) -> Any:
        return network(lambda _, x: dequantized(x, 0.5, 3), (2, 8), dtype="uint8")

    def leaves(self) -> Mapping[str, Any]:
        halves = relax.const(0.5, "float16"), relax.const(3, "int8")
        return {
            "the operator converts int8 to float16": network(
                lambda _, x: relax.op.dequantize(x, *halves, out_dtype="float16"), (2, 8), dtype="int8"
            ),
            "the operator converts float16 to int8": network(
                lambda _, x: relax.op.quantize(x, *halves), (2, 8), dtype="float16"
            ),
        }

    @pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
    def test_encoding_rounds_and_keeps_within_the_limits_of_the_type(self, dtype: str) -> None:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        after, _ = self.apply(network(lambda _, x: quantized(x, 0.5, 3, dtype), (2, 8)))
        x = random(2, 8)
        x[0, :2] = -1e6, 1e6
        assert np.array_equal(run(after, x), np.clip(np.rint(x * 2) + 3, least, most).astype(dtype))

    def test_scales_lie_along_the_axis_that_they_are_of(self) -> None:
        scales, zeros = np.array([0.5, 2], "float32"), np.array([3, 0], "uint8")

        def body(_: Emit, x: Any) -> Any:
            return relax.op.dequantize(x, relax.const(scales), relax.const(zeros), axis=0)

        after, _ = self.apply(network(body, (2, 8), dtype="uint8"))
        x = np.arange(16, dtype="uint8").reshape(2, 8)
        assert np.array_equal(run(after, x), (x - zeros[:, None].astype("float32")) * scales[:, None])

    def test_a_target_without_the_instruction_leaves_all_to_tvm(self) -> None:
        with as_tvm_target(WITHOUT):
            _, report = self.make().apply(self.fires())
        assert report.left == {"the target has no instruction for 8-bit dot products": 1}
