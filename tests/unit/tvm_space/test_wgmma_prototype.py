"""The prototype of a product by wgmma: its tiles lie as descriptors demand, and nvcc compiles it."""

import re

import pytest

from benchmarks.gpu.wgmma_prototype import (
    COLUMNS,
    DEPTH,
    GROUP,
    ROWS,
    THREADS,
    compile_product,
    copied_unit,
    descriptor_offset,
)
from tests.fixtures.cuda import needs_nvcc


@pytest.mark.parametrize("rows", [ROWS, COLUMNS])
def test_a_tile_lies_as_the_hardware_reads_it(rows: int) -> None:
    """PTX: with a swizzle of 128 bytes, bits 4 to 6 of an address are combined with bits 7 to 9."""
    tile = {}
    for number in range(rows * DEPTH // 8 // THREADS):
        for thread in range(THREADS):
            row, column, stored = copied_unit(number, thread)
            for element in range(8):
                tile[(row * DEPTH + stored + element) * 2] = row, column + element
    for part in range(DEPTH // 16):
        for row in range(rows):
            for column in range(16):
                address = 16 * (descriptor_offset(0, part) + row // 8 * GROUP) + row % 8 * 128 + 2 * column
                assert tile[address ^ (address >> 3 & 0x70)] == (row, part * 16 + column)


@needs_nvcc
@pytest.mark.long
def test_nvcc_compiles_a_step_of_products_that_do_not_wait_for_each_other() -> None:
    library = compile_product(1024)
    ((kernel,), (code,)) = library.kernels, library.codes
    products = re.findall(r"wgmma\.(mma_async|wait_group)", code.ptx)
    assert products == ["mma_async"] * (DEPTH // 16) + ["wait_group"]
    assert (kernel.threads, kernel.spill_bytes, kernel.stack_bytes) == (THREADS, 0, 0)
    assert "serialized" not in code.log
