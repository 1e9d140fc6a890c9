"""A check in float16 passes what is rounded and fails what is wrong, also where sums are long."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi

from mallorn.workers.interfaces.output_comparison import Agreement
from mallorn.workers.measure.compare_outputs import compare_outputs
from mallorn.workers.tvm.compile.reference_outputs import write_reference
from mallorn.workers.tvm.programs.program_blocks import arguments
from tests.fixtures.kernel_libraries import run_here

ROWS, COLUMNS = 64, 128
TILE = 16


def product(terms: int, sums: str) -> Any:
    a = te.placeholder((ROWS, terms), "float16", name="a")
    b = te.placeholder((COLUMNS, terms), "float16", name="b")
    k = te.reduce_axis((0, terms), name="k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(a[i, k].astype(sums) * b[j, k].astype(sums), axis=k)

    c = te.compute((ROWS, COLUMNS), element, name="c")
    half = te.compute((ROWS, COLUMNS), lambda i, j: c[i, j].astype("float16"), name="half")
    return tvm.IRModule({"main": te.create_prim_func([a, b, c if sums == "float16" else half])})


def verdict(mod: Any, folder: Path, result: Any) -> Agreement:
    """What a check says of a kernel: `result` computes its output from the inputs."""
    inputs, expected, ours = (str(folder / f"{name}.npz") for name in ("inputs", "expected", "ours"))
    by = write_reference(tvm.ir.save_json(mod), arguments(mod), 5, inputs, expected, run_here)
    with np.load(inputs) as archive:
        *given, output = archive.values()
    assert np.isnan(output).all(), "an output begins as nothing that passes for a result"
    np.savez(ours, **{f"arg_{len(given)}": result(*given).astype("float16")})
    return compare_outputs(ours, expected, by)


def kernel(a: Any, b: Any, *, terms: int | None = None) -> Any:
    return a[:, :terms].astype("float32") @ b[:, :terms].astype("float32").T


def kernel_in_float16(a: Any, b: Any) -> Any:
    sums = np.zeros((ROWS, COLUMNS), "float16")
    for k in range(a.shape[1]):
        sums += a[:, k : k + 1] * b[:, k]
    return sums


def with_swapped_tiles(a: Any, b: Any) -> Any:
    right = kernel(a, b)
    wrong = right.copy()
    wrong[:TILE, :TILE], wrong[:TILE, TILE : 2 * TILE] = right[:TILE, TILE : 2 * TILE], right[:TILE, :TILE]
    return wrong


@pytest.mark.parametrize("terms", [1024, 4096])
@pytest.mark.parametrize("sums", ["float16", "float32"])
def test_a_kernel_that_misses_one_step_or_swaps_two_tiles_fails(
    terms: int, sums: str, tmp_path: Path
) -> None:
    mod = product(terms, sums)
    assert verdict(mod, tmp_path, kernel).ok
    step = verdict(mod, tmp_path, lambda a, b: kernel(a, b, terms=terms - TILE))
    assert not step.ok
    assert not verdict(mod, tmp_path, with_swapped_tiles).ok


@pytest.mark.parametrize("terms", [1024, 4096])
def test_sums_in_float16_pass_only_where_the_program_keeps_them_so(terms: int, tmp_path: Path) -> None:
    assert verdict(product(terms, "float16"), tmp_path, kernel_in_float16).ok
    assert not verdict(product(terms, "float32"), tmp_path, kernel_in_float16).ok


def test_a_kernel_that_writes_nothing_fails(tmp_path: Path) -> None:
    unwritten = np.full((ROWS, COLUMNS), np.nan)
    assert not verdict(product(64, "float32"), tmp_path, lambda *_: unwritten).ok


def test_sums_of_positive_terms_may_be_as_far_off_as_the_program_itself(tmp_path: Path) -> None:
    """Such sums lose the low bits of most terms: every order of them is off, and by another amount."""
    data = te.placeholder((8, 1024), "float16", name="data")
    mod = tvm.IRModule({"main": te.create_prim_func([data, topi.nn.softmax(data)])})

    def in_order(values: Any) -> Any:
        exponents = np.exp(values - values.max(1, keepdims=True))
        sums = np.zeros((8, 1), "float16")
        for k in range(exponents.shape[1]):
            sums += exponents[:, k : k + 1]
        return exponents / sums

    def in_float32(values: Any) -> Any:
        exponents = np.exp((values - values.max(1, keepdims=True)).astype("float32"))
        return exponents / exponents.sum(1, keepdims=True)

    assert verdict(mod, tmp_path, in_order).ok
    assert verdict(mod, tmp_path, in_float32).ok
    assert not verdict(mod, tmp_path, lambda values: in_float32(values) * 1.5).ok


def test_a_program_that_reads_its_output_gets_numbers_there(tmp_path: Path) -> None:
    """One that adds to what is there would compute nothing from a NaN."""
    source = """
# from tvm.script import ir as I
# from tvm.script import tirx as T
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("B"):
                v = T.axis.spatial(8, i)
                B[v] = B[v] + A[v]
"""
    mod = tvm.script.from_source(source)
    inputs, expected = str(tmp_path / "inputs.npz"), str(tmp_path / "expected.npz")
    write_reference(tvm.ir.save_json(mod), arguments(mod), 5, inputs, expected, run_here)
    with np.load(inputs) as given, np.load(expected) as results:
        assert np.array_equal(results["arg_1"], given["arg_0"] + given["arg_1"])
