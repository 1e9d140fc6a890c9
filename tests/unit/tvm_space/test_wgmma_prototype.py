"""The prototype of a product by wgmma: TVM writes it, and nvcc compiles it for Hopper."""

import re

import pytest

from benchmarks.gpu.wgmma_prototype import DEPTH, THREADS, compile_product
from tests.fixtures.cuda import needs_nvcc


@needs_nvcc
@pytest.mark.long
def test_nvcc_compiles_a_step_of_products_that_do_not_wait_for_each_other() -> None:
    library = compile_product(1024)
    ((kernel,), (code,)) = library.kernels, library.codes
    products = re.findall(r"wgmma\.(mma_async|wait_group)", code.ptx)
    assert products == ["mma_async"] * (DEPTH // 16) + ["wait_group"]
    assert (kernel.threads, kernel.spill_bytes, kernel.stack_bytes) == (THREADS, 0, 0)
    assert "serialized" not in code.log
