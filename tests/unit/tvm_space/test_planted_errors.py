"""A check in every narrow type fails a kernel that is wrong in one tile or in one term of sixteen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te

from mallorn.workers.device.random_and_saved_arrays import load_arrays, save_arrays
from mallorn.workers.interfaces.output_comparison import Agreement
from mallorn.workers.measure.compare_outputs import compare_outputs
from mallorn.workers.tvm.compile.reference_outputs import write_reference
from mallorn.workers.tvm.programs.program_blocks import arguments
from tests.fixtures.kernel_libraries import run_here

ROWS, COLUMNS, TERMS = 256, 256, 1024
TILE = 16
SCALE: Final = 1 / 4096  # from sums of bytes to bytes
# What a program reads, sums up in, and writes.
KINDS: Final = {
    "float16": ("float16", "float32", "float16"),
    "float16 sums": ("float16", "float16", "float16"),
    "bfloat16": ("bfloat16", "float32", "bfloat16"),
    "int8": ("int8", "int32", "int32"),
    "int8 rounded": ("int8", "int32", "int8"),
}
Kernel = Callable[[Any, Any], Any]


def product(kind: str) -> Any:
    inputs, sums, result = KINDS[kind]
    a = te.placeholder((ROWS, TERMS), inputs, name="a")
    b = te.placeholder((COLUMNS, TERMS), inputs, name="b")
    k = te.reduce_axis((0, TERMS), name="k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(a[i, k].astype(sums) * b[j, k].astype(sums), axis=k)

    c = te.compute((ROWS, COLUMNS), element, name="c")

    def narrow(i: Any, j: Any) -> Any:
        if result != "int8":
            return c[i, j].astype(result)
        scaled = tvm.tirx.round(c[i, j].astype("float32") * tvm.tirx.const(SCALE, "float32"))
        return tvm.tirx.max(tvm.tirx.min(scaled, 127.0), -128.0).astype("int8")

    last = c if result == sums else te.compute((ROWS, COLUMNS), narrow, name="narrow")
    return tvm.IRModule({"main": te.create_prim_func([a, b, last])})


def right(a: Any, b: Any) -> Any:
    """Sums in another type than any of the programs: float64 holds those of bytes exactly."""
    return a.astype("float64") @ b.astype("float64").T


def without_a_step_in_one_tile(a: Any, b: Any) -> Any:
    """One tile of the result lacks sixteen of its 1,024 terms."""
    result = right(a, b)
    result[:TILE, :TILE] = right(a[:TILE, TILE:], b[:TILE, TILE:])
    return result


def with_two_swapped_tiles(a: Any, b: Any) -> Any:
    result = right(a, b)
    result[:TILE, : 2 * TILE] = np.roll(result[:TILE, : 2 * TILE], TILE, axis=1)
    return result


def with_every_sixteenth_term_wrong(a: Any, b: Any) -> Any:
    """Every sixteenth term multiplies the value beside its own."""
    shifted = b.copy()
    shifted[:, ::16] = b[:, 1::16]
    return right(a, shifted)


def verdict(kind: str, folder: Path, kernel: Kernel) -> Agreement:
    """What a check says of a kernel that computes the product from the inputs."""
    mod, result = product(kind), KINDS[kind][2]
    inputs, expected, ours = (str(folder / f"{name}.npz") for name in ("inputs", "expected", "ours"))
    by = write_reference(tvm.ir.save_json(mod), arguments(mod), 5, inputs, expected, run_here)
    given = load_arrays(inputs)
    sums = kernel(given["arg_0"], given["arg_1"])
    if kind == "int8 rounded":
        sums = np.clip(np.round(sums * SCALE), -128, 127)
    dtype = ml_dtypes.bfloat16 if result == "bfloat16" else result
    save_arrays(ours, {"arg_2": sums.astype(dtype)})
    return compare_outputs(ours, expected, by)


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_kernel_passes(kind: str, tmp_path: Path) -> None:
    assert verdict(kind, tmp_path, right).ok


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "kernel", [without_a_step_in_one_tile, with_two_swapped_tiles, with_every_sixteenth_term_wrong]
)
def test_a_planted_error_is_caught(kind: str, kernel: Kernel, tmp_path: Path) -> None:
    found = verdict(kind, tmp_path, kernel)
    assert not found.ok
    assert found.max_error > 2 * found.tolerance, "and by no narrow margin"
