"""Products with weights in blocks under the rule of ours: the same numbers, a first guess, stock traces."""

from typing import Any

import numpy as np
import pytest
import tvm

from mallorn.core.values.machine import assume_typical_cpu
from mallorn.graphc.quant import block_quantized_matmul_function, llvm_byte_dot_products
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.searchers.space import Sketch
from mallorn.workers.tvm.compile.reference_outputs import replace_special_instructions
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.workload_key import rename_blocks_canonically
from mallorn.workers.tvm.records.tuning_database import apply_trace
from mallorn.workers.tvm.space.rebuild_schedule import full_trace
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc.networks import HASWELL, call, difference, scheduled
from tests.unit.graphc.test_keep_block_quantized_weights import WIDE, runs_here

CASES = {
    "a row": ((1,), 64, 4, 8),
    "a row of a batch, columns that fill no vectors": ((1, 1), 75, 4, None),
    "rows": ((2, 5), 96, 8, None),
    "many rows": ((130,), 64, 8, 128),
}
ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
TARGETS = pytest.mark.parametrize("target", [WIDE, HASWELL], ids=["512 bits", "256 bits"])
BLOCKS, BLOCK = 9, 32
Case = tuple[tuple[int, ...], int, int, int | None]


def program(case: Case, target: str) -> tuple[Any, Any]:
    rows, outputs, bits, zero = case
    with as_tvm_target(target):
        product = block_quantized_matmul_function.BlockQuantizedMatmul(
            llvm_byte_dot_products.best_instruction(), rows, outputs, BLOCKS, BLOCK, bits, zero
        )
    function = block_quantized_matmul_function.build_function(product).with_attr("global_symbol", "main")
    return product, rename_blocks_canonically(tvm.IRModule({"main": function}))


def given(product: Any) -> tuple[list[Any], Any]:
    """Arguments, and what they give."""
    rng = np.random.default_rng(product.outputs)
    numbers = rng.integers(0, 1 << product.bits, (BLOCKS, BLOCK, product.outputs)).astype("uint8")
    scales = rng.random((BLOCKS, product.outputs)).astype("float32")
    zeros = rng.integers(0, 1 << product.bits, scales.shape).astype("uint8")
    x = rng.standard_normal((*product.rows, BLOCKS * BLOCK)).astype("float32")
    packed = [
        block_quantized_matmul_function.pack_weights(product, numbers),
        block_quantized_matmul_function.pack_by_block(product, scales),
    ]
    if product.zero is None:
        packed.append(block_quantized_matmul_function.pack_by_block(product, zeros))
    else:
        zeros[:] = product.zero
    real = (numbers - zeros[:, None].astype("float64")) * scales[:, None]
    return [x, *packed], x @ real.reshape(BLOCKS * BLOCK, -1)


def answer(mod: Any, target: str, product: Any) -> float:
    """How far its answer is from what it should be."""
    args, wanted = given(product)
    out = call(mod, *args, np.full(wanted.shape, 7, "float32"), target=as_tvm_target(target))
    return difference(out, wanted)


def sketch_of(mod: Any, target: str) -> Sketch:
    (sketch,) = design_space(tvm.ir.save_json(mod), target)
    return sketch


@ALL
@TARGETS
def test_the_first_guess_is_right_and_replayed_by_stock_traces(case: Case, target: str) -> None:
    if not runs_here(target):
        pytest.skip("this processor lacks the instruction")
    product, mod = program(case, target)
    tir, sketch = tvm.ir.save_json(mod), sketch_of(mod, target)
    first, *_ = ranked([sketch], nests(tir), assume_typical_cpu(2, product.instruction.lanes), 4)
    assert answer(scheduled(mod, target, first.decisions), target, product) < 2e-4
    trace = full_trace(tir, target, sketch.trace, first.decisions)
    assert trace is not None
    assert answer(apply_trace(mod, trace).mod, target, product) < 2e-4


@ALL
def test_columns_are_shared_by_the_cores(case: Case) -> None:
    product, mod = program(case, WIDE)
    tir, sketch = tvm.ir.save_json(mod), sketch_of(mod, WIDE)
    first, *_ = ranked([sketch], nests(tir), assume_typical_cpu(2, product.instruction.lanes), 4)
    assert "T.parallel" in scheduled(mod, WIDE, first.decisions).script()


@pytest.mark.parametrize("bits", [4, 8])
@TARGETS
def test_the_largest_numbers_do_not_overflow(bits: int, target: str) -> None:
    """Blocks of the greatest length, of the largest weights and inputs of one sign."""
    if not runs_here(target):
        pytest.skip("this processor lacks the instruction")
    with as_tvm_target(target):
        product = block_quantized_matmul_function.BlockQuantizedMatmul(
            llvm_byte_dot_products.best_instruction(), (2,), 16, 1, 256, bits, 0
        )
    numbers = np.full((1, 256, 16), (1 << bits) - 1, "uint8")
    args = [
        np.stack([np.ones(256), -np.ones(256)]).astype("float32"),
        block_quantized_matmul_function.pack_weights(product, numbers),
    ]
    args.append(block_quantized_matmul_function.pack_by_block(product, np.ones((1, 16), "float32")))
    function = block_quantized_matmul_function.build_function(product).with_attr("global_symbol", "main")
    largest = 256.0 * ((1 << bits) - 1)
    mod, zeros = tvm.IRModule({"main": function}), np.zeros((2, 16), "float32")
    found = call(mod, *args, zeros, target=as_tvm_target(target))
    np.testing.assert_allclose(found, [[largest] * 16, [-largest] * 16], rtol=1e-6)


@ALL
@TARGETS
def test_a_processor_without_the_instruction_checks_it(case: Case, target: str) -> None:
    product, mod = program(case, target)
    assert answer(replace_special_instructions(mod), '{"kind":"llvm","num-cores":1}', product) < 2e-4
