"""How often loops of generated code run, by the bounds that are written into them."""

import pytest

from mallorn.workers.features.assembly_parser import functions_of
from mallorn.workers.features.assembly_views import (
    COUNTS_ON_ARM64,
    COUNTS_ON_X86,
    UNKNOWN,
    Counting,
    estimate_run_counts,
)

BEGIN = "\t.type\tf,@function\nf:\n"


def runs(body: str, counting: Counting = COUNTS_ON_X86) -> dict[str, float]:
    """By the mnemonic of the instruction."""
    (function,) = functions_of(BEGIN + body)
    times = estimate_run_counts(function, counting)
    return {each.mnemonic: times[at] for at, each in enumerate(function.instructions)}


def test_loops_multiply() -> None:
    found = runs(
        "\txorl\t%eax, %eax\n.L1:\n\tmovups\t(%rdx), %xmm0\n\txorl\t%edi, %edi\n"
        ".L2:\n\tvfmadd231ps\t(%rcx,%rdi), %ymm9, %ymm12\n"
        "\taddq\t$512, %rdi\n\tcmpq\t$4096, %rdi\n\tjne\t.L2\n"
        "\tincq\t%rax\n\tcmpq\t$14, %rax\n\tjne\t.L1\n\tretq\n"
    )
    assert (found["vfmadd231ps"], found["movups"], found["retq"]) == (14 * 8, 14, 1)


@pytest.mark.parametrize(
    ("body", "trips"),
    [
        ("\tmovl\t$64, %ecx\n.L1:\n\tmulps\t%xmm0, %xmm1\n\tdecq\t%rcx\n\tjne\t.L1\n", 64),
        ("\tmovq\t$-256, %rcx\n.L1:\n\tmulps\t%xmm0, %xmm1\n\taddq\t$16, %rcx\n\tjne\t.L1\n", 16),
        ("\txorl\t%r9d, %r9d\n.L1:\n\tmulps\t%xmm0, %xmm1\n\tincl\t%r9d\n\tcmpl\t$7, %r9d\n\tjb\t.L1\n", 7),
        (".L1:\n\tmulps\t%xmm0, %xmm1\n\ttestb\t$1, %r8b\n\tjne\t.L1\n", 2),
        (".L1:\n\tmulps\t%xmm0, %xmm1\n\tleaq\t4(%rax), %rdx\n\tcmpq\t$32, %rdx\n\tjne\t.L1\n", 8),
    ],
    ids=["down", "up to zero", "half a register", "a flag", "stepped elsewhere"],
)
def test_counters_are_read_however_they_are_kept(body: str, trips: float) -> None:
    assert runs(body)["mulps"] == trips


def test_a_bound_from_elsewhere_is_guessed() -> None:
    body = ".L1:\n\tmulps\t%xmm0, %xmm1\n\tincq\t%rax\n\tcmpq\t%rsi, %rax\n\tjne\t.L1\n"
    assert runs(body)["mulps"] == UNKNOWN


def test_a_jump_back_from_code_that_was_moved_away_is_no_loop() -> None:
    body = ".L1:\n\tmulps\t%xmm0, %xmm1\n\tcmpl\t$223, %r9d\n\tja\t.L1\n\taddps\t%xmm0, %xmm1\n\tjmp\t.L1\n"
    assert set(runs(body).values()) == {1.0}


def test_arm_counts_down_and_up() -> None:
    down = "\tmov\tx3, #24\n.L1:\n\tfmla\tv0.4s, v1.4s, v2.4s\n\tsubs\tx3, x3, #1\n\tb.ne\t.L1\n"
    up = (
        "\tmov\tx3, xzr\n.L1:\n\tfmla\tv0.4s, v1.4s, v2.4s\n\tadd\tx3, x3, #16\n\tcmp\tx3, #64\n\tb.ne\t.L1\n"
    )
    assert runs(down, COUNTS_ON_ARM64)["fmla"] == 24
    assert runs(up, COUNTS_ON_ARM64)["fmla"] == 4


@pytest.mark.parametrize(
    "text", ["\tretq\n", "\tjne\t.L9\n", ".L1:\n\tcmpq\t$99999999999, %rax\n\tjne\t.L1\n"]
)
def test_any_text_has_counts_that_end(text: str) -> None:
    assert all(1 <= times < 1e9 for times in runs(text).values())
