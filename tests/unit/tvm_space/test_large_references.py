"""References of large programs are computed in tiles on all cores, and are the same bits."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi

from mallorn.workers.tvm.compile import reference_outputs
from mallorn.workers.tvm.compile.reference_outputs import HOST, parallelize
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.tvm.programs.program_blocks import tensor_args
from tests.fixtures.kernel_libraries import run_here


def product(rows: int, columns: int, terms: int, dtype: str, *, transposed: bool = False) -> Any:
    a = te.placeholder((rows, terms), dtype, name="a")
    b = te.placeholder((columns, terms) if transposed else (terms, columns), dtype, name="b")
    k = te.reduce_axis((0, terms), name="k")
    sums = "int32" if dtype == "int8" else dtype

    def element(i: Any, j: Any) -> Any:
        return te.sum(a[i, k].astype(sums) * (b[j, k] if transposed else b[k, j]).astype(sums), axis=k)

    c = te.compute((rows, columns), element, name="c")
    return tvm.IRModule({"main": te.create_prim_func([a, b, topi.nn.relu(c)])})


def convolution(channels: int, size: int, stride: int) -> Any:
    data = te.placeholder((1, channels, size, size), "float32", name="data")
    weight = te.placeholder((channels, channels, 3, 3), "float32", name="weight")
    result = topi.nn.conv2d_nchw(data, weight, stride, 1, 1)
    return tvm.IRModule({"main": te.create_prim_func([data, weight, result])})


def softmax(rows: int, columns: int) -> Any:
    data = te.placeholder((rows, columns), "float32", name="data")
    return tvm.IRModule({"main": te.create_prim_func([data, topi.nn.softmax(data)])})


def results(mod: Any) -> list[Any]:
    rng = np.random.default_rng(3)
    arrays = [
        (rng.uniform(-1, 1, shape) * (100 if dtype.startswith("int") else 1)).astype(dtype)
        for _, dtype, shape in tensor_args(mod)
    ]
    return run_here(mod, as_tvm_target(HOST), arrays)


@pytest.mark.parametrize(
    "mod",
    [
        product(96, 128, 64, "float32"),
        product(96, 128, 64, "float32", transposed=True),
        product(77, 123, 61, "float32"),  # nothing divides into vectors of 64
        product(61, 67, 64, "float32"),  # nor into any
        product(128, 64, 96, "int8", transposed=True),
        product(1, 512, 512, "float32", transposed=True),  # reads each weight once
        convolution(16, 28, 1),
        convolution(16, 28, 2),
        softmax(128, 64),
    ],
    ids=["rows", "columns", "odd", "prime", "bytes", "vector", "convolution", "strides", "softmax"],
)
def test_tiles_on_all_cores_compute_the_same_bits(mod: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_outputs, "LARGE", 1024)
    spread = parallelize(mod)
    assert "T.parallel" in spread.script()
    for ours, plain in zip(results(spread), results(mod), strict=True):
        assert np.array_equal(ours, plain)


def test_a_large_product_is_summed_in_vectors_and_a_small_one_is_left_alone() -> None:
    large = parallelize(product(4096, 4096, 4096, "float32", transposed=True)).script()
    assert "T.vectorized(64)" in large
    small = product(64, 64, 64, "float32")
    assert parallelize(small).script() == small.script()
