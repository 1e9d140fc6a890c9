"""Products by tiles: the numbers of plain sums, whatever is left over in rows, columns and windows.

On every machine LLVM makes the instructions of it; the loops for processes without tiles give the sums, so do
tiles as numpy computes them. On one with AMX the instructions themselves do, too.
"""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import tvm

from mallorn.core.values.machine import assume_typical_cpu
from mallorn.graphc.quant import tile_function
from mallorn.graphc.quant.dot_product_function import Sums
from mallorn.graphc.quant.tile_function import WIDTH, TiledSums, divide_into_tiles
from mallorn.graphc.quant.tile_instruction import TileInstruction
from mallorn.graphc.quant.x86_tile_instructions import BF16, INT8
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.workers.tvm.compile.reference_outputs import reduction_length, replace_special_instructions
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.program_blocks import arguments, blocks_of, operator_of
from mallorn.workers.tvm.records.tuning_database import apply_trace
from mallorn.workers.tvm.space.rebuild_schedule import full_trace, rebuild
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc.networks import TILES, random_of, runs

PLAIN = '{"kind":"llvm","num-cores":1,"opt-level":0}'
NAMED = '{"kind":"llvm","mcpu":"sapphirerapids","mtriple":"x86_64-unknown-linux-gnu","num-cores":2}'
ROOT = Path(__file__).resolve().parents[3]
REFUSED = """
from mallorn.graphc.quant.x86_tile_instructions import INT8
from tests.unit.graphc.test_tile_function import CASES, assert_sums, module, product
from mallorn.workers.device.detect_host import request_amx_tiles
from mallorn.workers.sandbox import seccomp
from mallorn.workers.sandbox.syscall import prctl
del seccomp.ALLOWED["arch_prctl"]
prctl(38, 1)
seccomp.install_syscall_filter(spawns=True, takes_sockets=False)
print("given" if request_amx_tiles() else "refused")
found = product(CASES["rows left over"], INT8)
target = '{"kind":"llvm","mattr":["+amx-tile","+amx-int8"],"mcpu":"x86-64","num-cores":1}'
assert_sums(found, module(found), target)
print("right")
"""
NUMBERS = pytest.mark.parametrize("by", [INT8, BF16], ids=["bytes", "bfloat16"])


class Case(NamedTuple):
    """A window's stride over data, and how many weights: rows with a matrix have no window."""

    data: tuple[int, ...]
    outputs: int
    window: int = 0
    stride: int = 1
    stacked: bool = False

    def sums(self, by: TileInstruction) -> Sums:
        step, inputs = by.numbers.input_index, self.data[-1]
        if not self.window:
            read = *(f"vi{axis}" for axis in range(len(self.data) - 1)), step
            kernel = self.data[:1] if self.stacked else ()
            result = *self.data[:-1], self.outputs
            return Sums(self.data, result, inputs, read, kernel, self.stacked, (inputs, 0))
        batch, high, wide, _ = self.data
        read = "vi0", f"vi1 * {self.stride} + vr0", f"vi2 * {self.stride} + vr1", step
        sizes = ((size - self.window) // self.stride + 1 for size in (high, wide))
        strides, kernel = (self.stride * inputs, wide * inputs), (self.window, self.window)
        return Sums(self.data, (batch, *sizes, self.outputs), inputs, read, kernel, strides=strides)


CASES = {
    "whole tiles": Case((32, 64), 32),
    "rows left over": Case((1, 65, 64), 48),
    "few rows": Case((9, 128), 64),
    "two tiles of rows, and one row more": Case((33, 96), 32),
    "rows that are no whole tiles": Case((2, 40, 80), 32),
    "a stack": Case((3, 20, 64), 32, stacked=True),
    "pictures without a window": Case((1, 5, 7, 64), 32),
    "a small picture": Case((1, 9, 9, 64), 32, window=3),
    "a wide picture": Case((2, 5, 22, 64), 32, window=3),
    "a picture that is left out by halves": Case((1, 11, 15, 32), 64, window=3, stride=2),
}
ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
# LLVM takes a second for each. `make test` has every case with bytes, and both types for each shape of data.
WITH_BYTES_ONLY = {"whole tiles", "few rows", "rows that are no whole tiles", "a small picture"} | {
    "two tiles of rows, and one row more",
    "pictures without a window",
}
MOST = pytest.mark.parametrize(
    ("case", "by"),
    [
        pytest.param(case, by, id=f"{name}-{number}", marks=[pytest.mark.long] * is_long)
        for name, case in CASES.items()
        for number, by, is_long in (("bytes", INT8, False), ("bfloat16", BF16, name in WITH_BYTES_ONLY))
    ],
)


def product(case: Case, by: TileInstruction) -> TiledSums:
    with as_tvm_target(TILES):
        found = divide_into_tiles(case.sums(by), by.numbers)
    assert found is not None
    return found


def module(found: TiledSums, name: str = "matmul") -> Any:
    function = tile_function.build_function(found, name)
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def factors(found: TiledSums) -> tuple[Any, Any]:
    sums, by = found.sums, found.instruction.numbers
    sizes = sums.data, (*sums.kernel, sums.inputs, sums.result[-1])
    drawn = (
        random_of("float32" if dtype == "bfloat16" else dtype, *size)
        for dtype, size in zip((by.data, by.weights), sizes, strict=True)
    )
    data, weights = (each.astype(ml_dtypes.bfloat16) if found.instruction is BF16 else each for each in drawn)
    return data, weights


def expected(found: TiledSums, data: Any, weights: Any) -> Any:
    """The sums by numpy."""
    x, w = data.astype("float64"), weights.astype("float64")
    if not found.sums.window_axes:
        return x @ w
    _, high, wide, _ = found.sums.result
    stride = (found.sums.strides or (0, 0))[0] // found.sums.inputs
    return sum(
        x[
            :,
            down : down + stride * (high - 1) + 1 : stride,
            across : across + stride * (wide - 1) + 1 : stride,
        ]
        @ w[down, across]
        for down, across in np.ndindex(w.shape[:2])
    )


def assert_sums(found: TiledSums, mod: Any, target: str) -> None:
    data, weights = factors(found)
    out = tvm.runtime.tensor(np.full(found.sums.result, 7, found.instruction.numbers.sums))
    given = map(tvm.runtime.tensor, (data, tile_function.pack_weights(found, weights)))
    tvm.tirx.build(mod, as_tvm_target(target))["main"](*given, out)  # by the JIT: no process may be started
    wanted = expected(found, data, weights)
    limit = 0 if found.instruction is INT8 else 1e-5 * np.abs(wanted).max()
    assert np.abs(out.numpy() - wanted).max() <= limit


def multiplied(data: Any, weights: Any) -> Any:
    """What the processor makes of a tile of data and one of weights, which lie in groups."""
    groups = data.reshape(len(data), len(weights), -1).astype("float64")
    return np.einsum("mkb,knb->mn", groups, weights.astype("float64"))


@NUMBERS
@ALL
def test_a_process_without_tiles_computes_the_same(case: Case, by: TileInstruction) -> None:
    found = product(case, by)
    assert_sums(found, replace_special_instructions(module(found)), PLAIN)


@MOST
def test_tiles_compute_plain_sums(case: Case, by: TileInstruction) -> None:
    """The instructions are in it; where this machine has them, they give the sums of integers exactly."""
    found = product(case, by)
    text = tvm.tirx.build(module(found), as_tvm_target(TILES)).inspect_source("asm")
    assert all(word in text for word in (by.intrinsic, "ldtilecfg", "tilerelease", "syscall"))
    if runs(TILES):
        assert_sums(found, module(found), TILES)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its code is for x86")
def test_code_with_tiles_is_right_in_a_process_that_gets_none() -> None:
    """Whatever this machine has: the kernel's answer is no."""
    done = subprocess.run(
        [sys.executable, "-c", REFUSED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["refused", "right"], done.stderr


@NUMBERS
def test_a_named_processor_with_tiles_multiplies_by_them(by: TileInstruction) -> None:
    text = tvm.tirx.build(module(product(CASES["whole tiles"], by)), as_tvm_target(NAMED)).inspect_source(
        "asm"
    )
    assert by.intrinsic in text


@NUMBERS
def test_weights_lie_as_the_processor_reads_tiles(by: TileInstruction) -> None:
    found = product(CASES["two tiles of rows, and one row more"], by)
    data, weights = factors(found)
    laid, step = tile_function.pack_weights(found, weights), found.elements_per_multiply
    height = step // by.numbers.terms
    columns = [
        sum(
            multiplied(data[:, at * step : at * step + step], tiles[at * height : at * height + height])
            for at in range(found.run_length // step)
        )
        for tiles in laid
    ]
    np.testing.assert_allclose(np.hstack(columns), expected(found, data, weights), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("case", "by"),
    [
        pytest.param("rows left over", INT8, id="rows left over-bytes"),
        pytest.param("rows left over", BF16, id="rows left over-bfloat16", marks=pytest.mark.long),
        pytest.param("a stack", INT8, id="a stack-bytes", marks=pytest.mark.long),
        pytest.param("a stack", BF16, id="a stack-bfloat16"),
        pytest.param("a small picture", INT8, id="a small picture-bytes"),
        pytest.param("a small picture", BF16, id="a small picture-bfloat16", marks=pytest.mark.long),
        pytest.param("a wide picture", INT8, id="a wide picture-bytes", marks=pytest.mark.long),
        pytest.param("a wide picture", BF16, id="a wide picture-bfloat16"),
    ],
)
def test_the_first_guess_is_right_and_replayed_by_stock_traces(case: str, by: TileInstruction) -> None:
    """In loops on a machine without tiles, by tiles on one with them."""
    found = product(CASES[case], by)
    tir = tvm.ir.save_json(module(found))
    (sketch,) = design_space(tir, TILES)
    first, *_ = ranked([sketch], nests(tir), assume_typical_cpu(2, 16), 4)
    schedule = rebuild(tir, TILES, sketch.trace, first.decisions)
    trace = full_trace(tir, TILES, sketch.trace, first.decisions)
    assert schedule is not None
    assert trace is not None
    assert "T.parallel" in schedule.mod.script()
    for mod in (schedule.mod, apply_trace(module(found), trace).mod):
        assert_sums(found, replace_special_instructions(mod), PLAIN)
        if runs(TILES):
            assert_sums(found, mod, TILES)


def test_its_operator_its_terms_and_its_result_are_told() -> None:
    mod = module(product(CASES["a small picture"], INT8), "conv2d")
    assert operator_of(blocks_of(mod)) == "conv2d"
    assert reduction_length(mod) == 9 * 64
    assert [arguments(module(product(case, INT8))).outputs for case in CASES.values()] == [(2,)] * len(CASES)


@pytest.mark.parametrize(
    ("case", "target"),
    [
        (CASES["whole tiles"], PLAIN),
        (Case((7, 64), WIDTH), TILES),
        (Case((64, 64), 16), TILES),
        (Case((64, 20), WIDTH), TILES),
    ],
    ids=["no tiles", "too few rows", "too few columns", "too few inputs"],
)
def test_what_does_not_fill_tiles_is_left_to_vectors(case: Case, target: str) -> None:
    with as_tvm_target(target):
        assert divide_into_tiles(case.sums(INT8), INT8.numbers) is None
