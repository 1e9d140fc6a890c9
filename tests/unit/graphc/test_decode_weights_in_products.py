"""Weights of 8 and 4 bits on GPUs: onnxruntime's numbers, stored in as many bits as the model has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper

from mallorn.core.values.graph_report import StoredRecipe
from mallorn.graphc.quant.keep_block_quantized_weights import DecodeWeightsInProducts
from mallorn.workers.tvm.network.extract_tasks import describe_task
from mallorn.workers.tvm.network.graph_recipes import FP16_GPU, TUNED_GPU, recipe_steps
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target, count_operators, run_steps
from mallorn.workers.tvm.programs.workload_key import rename_blocks_canonically
from tests.fixtures.cuda import cuda_target
from tests.unit.graphc.networks import difference, network, program, run, run_onnxruntime, weights
from tests.unit.graphc.pass_conformance import PassConformance
from tests.unit.graphc.test_keep_block_quantized_weights import (
    coded,
    kept_as_reals,
    looked_up,
    model,
    n_bits,
    product,
    random,
)

GPU = cuda_target("sm_90a")
NEAR = {"float32": 1e-5, "float16": 2e-3}


def lowered(model: onnx.ModelProto, folder: Path, recipe: StoredRecipe = TUNED_GPU) -> Any:
    onnx.save(model, folder / "m.onnx")
    target = as_tvm_target(GPU)
    return run_steps(
        load_network(folder / "m.onnx", target=target).mod, recipe_steps(recipe)["before"], target
    )[0]


def constant_bytes(mod: Any) -> int:
    """How many bytes of constants the module has."""
    sizes = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.GenericConst):
            sizes.append(node.value.numpy().nbytes)

    tvm.relax.analysis.post_order_visit(mod["main"], visit)
    return sum(sizes)


@pytest.mark.parametrize(("recipe", "factors"), [(TUNED_GPU, "float32"), (FP16_GPU, "float16")])
@pytest.mark.parametrize("zeros", [False, True], ids=["one zero point", "zero points"])
@pytest.mark.parametrize(
    ("bits", "rows", "inputs", "outputs", "block"),
    [(4, (1,), 128, 40, 32), (4, (2, 3), 64, 7, 16), (8, (9,), 96, 33, 32), (8, (1, 1), 256, 64, 128)],
)
def test_a_product_of_few_bits_is_onnxruntimes(
    tmp_path: Path,
    recipe: StoredRecipe,
    factors: str,
    zeros: bool,
    bits: int,
    rows: tuple[int, ...],
    inputs: int,
    outputs: int,
    block: int,
) -> None:
    few = n_bits(rows, inputs, outputs, bits=bits, block=block, zeros=zeros, bias=True)
    mod, x = lowered(few, tmp_path, recipe), random(*rows, inputs)
    assert difference(run(mod, x), *run_onnxruntime(few, x, fused=False)) < NEAR[factors]
    (name,) = (name for name in count_operators(mod) if f"int{bits}_weights" in name)
    assert "add" in name  # the bias is part of the kernel
    blocks = inputs // block * outputs
    assert constant_bytes(mod) == inputs * outputs * bits // 8 + blocks * (5 if zeros else 4) + 4 * outputs


def test_scales_that_float16_holds_are_stored_so(tmp_path: Path) -> None:
    few = n_bits((1,), 64, 16, bits=4, block=32, zeros=False)
    scales = few.graph.initializer[1]
    halves = onnx.numpy_helper.to_array(scales).astype("float16").astype("float32")
    scales.CopyFrom(onnx.numpy_helper.from_array(halves, scales.name))
    mod, x = lowered(few, tmp_path), random(1, 64)
    assert difference(run(mod, x), *run_onnxruntime(few, x, fused=False)) < NEAR["float32"]
    assert constant_bytes(mod) == 64 * 16 // 2 + 2 * 2 * 16


def test_the_work_of_a_product_is_that_of_its_sums(tmp_path: Path) -> None:
    mod = lowered(n_bits((2,), 64, 32, bits=4, block=32, zeros=False), tmp_path)
    function = rename_blocks_canonically(program(mod))
    assert describe_task(function, "t", 1).flops == 2 * 2 * 64 * 32


def test_rows_of_a_table_are_decoded_behind_the_look_up(tmp_path: Path) -> None:
    node, weights = coded("UINT4", (64, 96), 1, 32)
    gather = helper.make_node("Gather", ["d", "x"], ["y"])
    places = np.array([[0, 63, 7], [-1, 5, 5]])
    table = model([node, gather], places, (2, 3, 96), **weights)
    mod = lowered(table, tmp_path)
    np.testing.assert_allclose(run(mod, places), *run_onnxruntime(table, places, fused=False), rtol=1e-6)
    assert kept_as_reals(mod) < 64 * 96 // 16


class TestDecodeWeightsInProducts(PassConformance):
    PASS = DecodeWeightsInProducts
    LANES = ()
    RECIPE = TUNED_GPU
    TARGET = GPU
    BEFORE = """
lv[8, 8] = astype(constant[8, 8])
lv1[8, 8] = multiply(lv[8, 8], constant[1, 8])
gv[2, 8] = matmul(x0[2, 8], lv1[8, 8])
"""
    AFTER = "gv[2, 8] = int8_weights(x0[2, 8], constant[8, 2], constant[8, 1])"

    def fires(self) -> Any:
        return product()

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the weights are not dequantised from constant bytes": network(
                lambda _, x: tvm.relax.op.matmul(x, weights(8, 8)), (2, 8)
            ),
            "the blocks of the weights lie along the outputs": product(scales=(8, 1)),
            "the scales of the weights are not per block along one axis": product(scales=(8, 8)),
            "the blocks of the weights span several rows": looked_up(),
        }
