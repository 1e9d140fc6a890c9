"""Quantised networks in the default recipe: integers from end to end, with onnxruntime's numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

from mallorn.graphc.quant.compute_in_integers import ComputeInIntegers
from mallorn.workers.tvm.network.graph_recipes import TUNED, recipe_steps
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target, count_operators, run_steps
from tests.unit.graphc import networks
from tests.unit.graphc.networks import network, run_onnxruntime
from tests.unit.graphc.pass_conformance import PassConformance
from tests.unit.graphc.quantized_arithmetic import Emit, dequantized, quantized
from tests.unit.graphc.test_int8_dot_products import WIDE, WITHOUT

onnxruntime = pytest.importorskip("onnxruntime")
from tests.unit.graphc.test_import_quantized_operators import (  # noqa: E402 (they need onnxruntime)
    NETWORKS,
    QDQ,
    QLINEAR,
    S8,
    U8,
    quantised,
    quantization,
    sample,
)

PRODUCTS = {"pictures": 2, "words": 3}


def lowered(path: Path, target: str = WIDE) -> Any:
    found = as_tvm_target(target)
    mod, _ = run_steps(load_network(path, target=found).mod, recipe_steps(TUNED)["before"], found)
    return mod


def near(path: Path, mod: Any, x: Any) -> None:
    """The same numbers without schedules, but for what rounds the other way at a few places."""
    (wanted,) = run_onnxruntime(path, x, fused=False)
    assert np.abs(networks.run(mod, x) - wanted).mean() <= 2 * np.abs(wanted).max() / 255


def count_products(mod: Any) -> int:
    return sum(count for name, count in count_operators(mod).items() if "int8_" in name)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("form", [QDQ, QLINEAR], ids=["QDQ", "QLinear"])
@pytest.mark.parametrize("data", [U8, S8], ids=["u8", "s8"])
def test_products_are_of_integers(tmp_path, network, form, data):
    path = quantised(tmp_path, network, form, data)
    mod = lowered(path)
    assert count_products(mod) == PRODUCTS[network]
    near(path, mod, sample(NETWORKS[network][1], 1))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("weights", [U8, S8], ids=["u8", "s8"])
def test_dynamic_quantisation_multiplies_integers(tmp_path, network, weights):
    make, shape = NETWORKS[network]
    onnx.save(make(17), tmp_path / "real.onnx")
    quantization.quantize_dynamic(tmp_path / "real.onnx", tmp_path / "quantised.onnx", weight_type=weights)
    mod = lowered(tmp_path / "quantised.onnx")
    assert count_products(mod) == PRODUCTS[network]
    near(tmp_path / "quantised.onnx", mod, sample(shape, 1))


def test_weights_with_any_zero_point_are_multiplied_as_integers():
    """Their differences from 3 do not fit into a byte, and those of 256 numbers are shifted."""
    numbers = np.arange(8 * 16).reshape(8, 16).astype("uint8") * 2

    def body(emit: Emit, x: Any) -> Any:
        return relax.op.matmul(emit(dequantized(x, 0.5, 7)), emit(dequantized(relax.const(numbers), 0.25, 3)))

    mod = network(body, (2, 8), dtype="uint8")
    target = as_tvm_target(WIDE)
    after, _ = run_steps(mod, recipe_steps(TUNED)["before"], target)
    assert count_products(after) == 1
    networks.assert_same(after, mod, tolerance=1e-6)


def test_nothing_between_products_is_stored_as_real_numbers(tmp_path):
    """A chain of convolutions with a residual sum writes bytes alone, until what follows is no product."""
    mod = lowered(quantised(tmp_path, "pictures", QDQ, U8))
    written: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and "int8_conv2d" in str(node.args[0] if node.args else ""):
            written.append(str(node.ty.dtype))

    relax.analysis.post_order_visit(mod["main"], visit)
    assert written == ["uint8", "uint8"]


def test_a_processor_without_the_instruction_computes_with_real_numbers(tmp_path):
    path = quantised(tmp_path, "pictures", QDQ, U8)
    mod = lowered(path, WITHOUT)
    assert not any("int8_" in name for name in count_operators(mod))
    near(path, mod, sample((1, 3, 16, 16), 1))


class TestComputeInIntegers(PassConformance):
    PASS = ComputeInIntegers
    BEFORE = """
lv[2, 8] = dequantize(x0[2, 8], constant[], constant[])
gv[4, 4] = reshape(lv[2, 8], [4, 4])
"""
    AFTER = """
lv[4, 4] = reshape(x0[2, 8], [4, 4])
gv[4, 4] = dequantize(lv[4, 4], constant[], constant[])
"""

    def fires(self) -> Any:
        def body(emit: Emit, x: Any) -> Any:
            return relax.op.reshape(emit(dequantized(x, 0.5, 3)), (4, 4))

        return network(body, (2, 8), dtype="uint8")

    def leaves(self) -> Mapping[str, Any]:
        real = relax.const(np.ones((8, 16), "float32"))

        def by_reals(emit: Emit, x: Any) -> Any:
            return relax.op.matmul(emit(dequantized(x, 0.5, 3)), real)

        def few_outputs(emit: Emit, x: Any) -> Any:
            weights = emit(dequantized(relax.const(np.ones((8, 3), "int8")), 0.5, 0))
            return relax.op.matmul(emit(dequantized(x, 0.5, 3)), weights)

        def apart(emit: Emit, x: Any, y: Any) -> Any:
            return relax.op.concat((emit(dequantized(x, 0.5, 3)), emit(dequantized(y, 0.25, 3))))

        def rows(emit: Emit, x: Any) -> Any:
            scales, zeros = relax.const(np.ones(2, "float32")), relax.const(np.zeros(2, "uint8"))
            return relax.op.reshape(emit(relax.op.dequantize(x, scales, zeros, axis=0)), (4, 4))

        return {
            "a factor is not dequantised data": network(by_reals, (2, 8), dtype="uint8"),
            "the sizes fit neither the instruction nor vectors": network(few_outputs, (2, 8), dtype="uint8"),
            "the parts of the concat have different scales, or are not quantised": network(
                apart, (2, 8), (2, 8), dtype="uint8"
            ),
            "the input has more than one scale": network(rows, (2, 8), dtype="uint8"),
            "the quantised type is uint8 already": network(lambda _, x: quantized(x, 0.5, 3), (2, 8)),
            "the quantised type is int16, not int8 or uint8": network(
                lambda _, x: quantized(x, 0.5, 3, "int16"), (2, 8)
            ),
        }

    def test_what_reads_nothing_decoded_does_not_count(self) -> None:
        mod = network(lambda emit, x: relax.op.nn.relu(emit(relax.op.reshape(x, (4, 4)))), (2, 8))
        assert self.apply(mod)[1].matched == 0

    def test_sizes_that_the_data_will_tell_are_no_hindrance(self) -> None:
        rows = tvm.tirx.Var("n", "int64")
        mod = network(
            lambda emit, x: relax.op.nn.relu(emit(dequantized(x, 0.5, 3))), (rows, 8), dtype="uint8"
        )
        assert self.apply(mod)[1].fired == 1

    def test_a_target_without_the_instruction_leaves_all_to_tvm(self) -> None:
        with as_tvm_target(WITHOUT):
            _, report = self.make().apply(self.fires())
        assert report.left == {"the target has no instruction for 8-bit dot products": 1}
