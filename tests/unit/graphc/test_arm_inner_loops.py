"""What LLVM makes of products for aarch64: the best instructions in the innermost loops, without spills."""

import re
from typing import Final

import pytest

from tests.unit.graphc.arm_loops import CASES, hot_loops, kernel_assembly, target

_I8MM: Final = target("dotprod", "i8mm")


@pytest.mark.parametrize(
    ("text", "dtype", "dots", "tiles"),
    [
        (target("dotprod"), "uint8", "sdot", "sdot"),
        (target("dotprod"), "int8", "sdot", "sdot"),
        (_I8MM, "uint8", "usdot", "usmmla"),
        (_I8MM, "int8", "sdot", "smmla"),
        (target(mcpu="neoverse-n1"), "uint8", "sdot", "sdot"),
        (target(mcpu="neoverse-v1"), "uint8", "usdot", "usmmla"),
    ],
    ids=["dotprod", "dotprod, signed", "i8mm", "i8mm, signed", "neoverse-n1", "neoverse-v1"],
)
@pytest.mark.parametrize("name", CASES)
def test_inner_loops_multiply_bytes_by_the_cpus_instructions_and_spill_nothing(
    name: str, text: str, dtype: str, dots: str, tiles: str
) -> None:
    assembly = kernel_assembly(CASES[name], dtype, text)
    word = dots if name in ("one row", "few channels") else tiles
    assert_hot_loops(assembly, word)


def assert_hot_loops(assembly: str, word: str) -> None:
    """Innermost loops multiply by this instruction; their sums stay in registers, and nothing is spilled."""
    hot = hot_loops(assembly, word)
    assert hot
    assert not [line for loop in hot for line in loop if "[sp" in line]
    assert not [line for loop in hot for line in loop if re.match(r"\tst[rp]\tq", line)]


_FLOATS: Final = [
    ("float32", "generic", "fmla"),
    ("float32", "neoverse-v1", "fmla"),
    ("float16", "neoverse-v1", "fmlal2"),
    ("float16", "neoverse-n1", "fmla"),  # without FMLAL
]


@pytest.mark.parametrize(
    ("name", "dtype", "mcpu", "word"),
    [
        *((name, *floats) for name in ("rows", "a pointwise convolution") for floats in _FLOATS),
        *(("a window", *floats) for floats in _FLOATS[:2]),
    ],
)
def test_inner_loops_of_floats_multiply_and_add_vectors_and_spill_nothing(
    name: str, dtype: str, mcpu: str, word: str
) -> None:
    assert_hot_loops(kernel_assembly(CASES[name], dtype, target(mcpu=mcpu)), word)
