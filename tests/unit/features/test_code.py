"""Counts over generated code: what is a loop, what is memory, what is a vector."""

import numpy as np
import pytest

from mallorn.costmodels.views import CODE
from mallorn.workers.features.assembly_parser import functions_of
from mallorn.workers.features.assembly_views import COLUMNS, code_features

X86 = """
\t.type\t__tvm_ffi_main,@function
__tvm_ffi_main:
\tvaddps\t%ymm0, %ymm0, %ymm0
\tretq
\t.type\tmain_compute_,@function
main_compute_:
\t.cfi_startproc
\tpushq\t%rbp
.LBB0_1:
\txorl\t%edi, %edi
.LBB0_2:
\tvbroadcastss\t-780(%rcx,%rdi,2), %ymm9
\tvmovups\t496(%rsp), %ymm15
\tvfmadd231ps\t%ymm15, %ymm9, %ymm12
\tvfmadd213ps\t96(%rdx,%rdi), %ymm6, %ymm9
\tvmovups\t%ymm9, (%rdx,%rdi)
\taddq\t$8, %rdi
\tcmpq\t$64, %rdi
\tjne\t.LBB0_2
\tvaddss\t%xmm1, %xmm2, %xmm3
\tjne\t.LBB0_1
\tretq
"""
ARM64 = """
\t.type\tmain_compute_,@function
main_compute_:
\tstp\tx29, x30, [sp, #-16]!
.LBB0_1:
\tldr\tq0, [x1]
\tfmla\tv0.4s, v1.4s, v2.s[0]
\tstr\tq0, [x2], #16
\tsubs\tx3, x3, #1
\tb.ne\t.LBB0_1
\tret
"""
PTX = """
.visible .entry main_kernel(
\t.param .u64 main_kernel_param_0
)
{
\tld.param.u64 \t%rd1, [main_kernel_param_0];
$L__BB0_1:
\tld.global.v4.f32 \t{%f1, %f2, %f3, %f4}, [%rd1];
\tfma.rn.f32 \t%f5, %f1, %f2, %f5;
\tst.local.f32 \t[%rd2], %f5;
\tbar.sync \t0;
\t@%p1 bra \t$L__BB0_1;
\tret;
}
"""


def counts(kind: str, text: str) -> dict[str, int]:
    row = code_features(kind, text)[0]
    return {name: round(2 ** float(value) - 1) for name, value in zip(COLUMNS, row, strict=True)}


def test_every_column_has_a_name() -> None:
    assert len(COLUMNS) == len(set(COLUMNS)) == CODE.width


def test_loops_are_jumps_back_and_count_by_their_depth() -> None:
    (function,) = functions_of(X86)
    assert function.name == "main_compute_"
    depths = {each.mnemonic: (each.depth, each.innermost) for each in function.instructions}
    assert depths["xorl"] == (1, False)
    assert depths["vfmadd231ps"] == (2, True)
    assert depths["vaddss"] == (1, False)
    assert depths["retq"] == (0, False)


def test_what_the_runtime_adds_is_not_counted() -> None:
    assert counts("llvm", X86)["functions"] == 1


def test_x86_is_counted() -> None:
    found = counts("llvm", X86)
    assert (found["loops"], found["deepest"]) == (2, 2)
    assert (found["fma"], found["add"], found["branch"]) == (2, 1, 2)
    assert (found["of 32 bytes"], found["of 4 bytes"]) == (2, 1)
    assert (found["loads innermost"], found["stores innermost"]) == (3, 1)
    assert (found["stack once"], found["stack innermost"]) == (2, 1)
    assert found["fma weighted"] == 2 * 64


def test_arm_is_counted() -> None:
    found = counts("llvm", ARM64)
    assert (found["loops"], found["fma"], found["branch"]) == (1, 1, 1)
    assert (found["loads innermost"], found["stores innermost"]) == (1, 1)
    assert (found["stores once"], found["stack once"]) == (2, 1)
    assert found["of 16 bytes"] == 1


@pytest.mark.parametrize("word", ["sdot", "usdot", "sudot", "smmla", "usmmla", "bfmmla", "fmlal2"])
def test_each_product_with_sums_of_arm_is_one(word: str) -> None:
    assert counts("llvm", ARM64.replace("fmla\tv", f"{word}\tv"))["fma"] == 1


def test_ptx_is_counted_and_local_memory_is_a_spill() -> None:
    found = counts("cuda", PTX)
    assert (found["loops"], found["fma"], found["branch"], found["barrier"]) == (1, 1, 1, 1)
    assert (found["loads innermost"], found["stores innermost"], found["stack once"]) == (1, 1, 1)


@pytest.mark.parametrize("text", ["", "\n\t.text\n", "garbage without meaning"])
def test_any_text_is_a_finite_row(text: str) -> None:
    row = code_features("llvm", text)
    assert row.shape == (1, CODE.width)
    assert np.isfinite(row).all()
