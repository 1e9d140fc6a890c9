"""Code for a processor: its indices are as wide as addresses, and it gathers nothing."""

from typing import Any

import pytest
import tvm
from tvm.ir.instrument import pass_instrument

from mallorn.graphc.export.code_generation import (
    compilation_context,
    compile_to_library,
    target_without_gather,
)

X86 = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "skylake-avx512", "num-cores": 1}
ARM32 = {"kind": "llvm", "mtriple": "armv7l-linux-gnueabihf", "num-cores": 1}

#: Halves of rows, of which the last is not full: LLVM would take the rows for a vector.
HALVES = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((T.int64(2), T.int64(64), T.int64(32)), "float32"),
         y: T.Buffer((T.int64(64), T.int64(49)), "float32")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for half in T.parallel(T.int64(2)):
        for row in range(T.int64(49)):
            for lane in T.vectorized(T.int64(32)):
                if half * T.int64(32) + lane < T.int64(49):
                    y[row, half * T.int64(32) + lane] = x[half, row, lane] * T.float32(0.125)
"""


@pass_instrument
class Lowered:
    """Keeps a program as it is before it becomes code."""

    text = ""

    def run_after_pass(self, module: Any, info: Any) -> None:
        if info.name == "tirx.RemoveNoOp":
            self.text = module.script()


def built(target: dict[str, Any], *instruments: Any) -> Any:
    module = tvm.IRModule({"main": tvm.script.from_source(HALVES)})
    return compile_to_library(module, tvm.target.Target(target), instruments)


@pytest.mark.parametrize(
    ("target", "loop"), [(X86, "in T.parallel(T.int64(2))"), (ARM32, "in T.parallel(2)")]
)
def test_indices_are_as_wide_as_the_addresses_of_the_target(target: dict[str, Any], loop: str) -> None:
    lowered = Lowered()
    built(target, lowered)
    assert loop in lowered.text


def test_rows_are_not_gathered_for_what_goes_down_a_column() -> None:
    told = built(X86).inspect_source("asm")
    assert "vmul" in told
    assert "gather" not in told
    assert "scatter" not in told


def test_a_target_without_gathers_is_told_as_it_is() -> None:
    old = tvm.target.Target(X86 | {"mcpu": "x86-64-v2"})
    assert target_without_gather(old) == old


def test_options_of_the_context_reach_tvm() -> None:
    with compilation_context(tvm.target.Target(X86), **{"tirx.disable_assert": True}) as context:
        assert context.config["tirx.disable_assert"]
