"""Small programs for tests, as the text in which programs travel."""

from functools import lru_cache, partial
from typing import Any

import tvm
from tvm import te, tirx, topi

TARGET = '{"kind":"llvm","mcpu":"x86-64-v3","num-cores":2}'


@lru_cache
def matmul(rows: int = 32, columns: int = 64, depth: int = 48) -> str:
    """A product with a bias and a rectifier."""
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    bias = te.placeholder((columns,), name="bias")
    k = te.reduce_axis((0, depth), name="k")
    product = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    result = topi.nn.relu(topi.add(product, bias))
    return text_of(a, b, bias, result)


@lru_cache
def masked_matmul() -> str:
    """Products to which a mask is added that the program computes, as attention does."""
    a, b = te.placeholder((4, 32, 48), name="a"), te.placeholder((4, 48, 64), name="b")
    lengths = te.placeholder((32, 64), "bool", name="lengths")
    low, high = te.placeholder((1,), name="low"), te.placeholder((1,), name="high")
    k = te.reduce_axis((0, 48), name="k")
    product = te.compute((4, 32, 64), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="product")
    mask = te.compute((1, 32, 64), lambda _, i, j: tirx.Select(lengths[i, j], low[0], high[0]), name="mask")
    result = te.compute((4, 32, 64), lambda n, i, j: product[n, i, j] + mask[0, i, j], name="result")
    return text_of(a, b, lengths, low, high, result)


@lru_cache
def conv2d() -> str:
    """A padded convolution with a rectifier."""
    a, w = te.placeholder((1, 14, 14, 32), name="a"), te.placeholder((3, 3, 32, 48), name="w")
    return text_of(a, w, topi.nn.relu(topi.nn.conv2d_nhwc(a, w, 1, 1, 1)))


@lru_cache
def softmax() -> str:
    """A chain of reductions: its sketches have compute locations and factored reductions."""
    a = te.placeholder((16, 64), name="a")
    return text_of(a, topi.nn.softmax(a))


@lru_cache
def negate() -> str:
    """A program that leaves nothing to choose."""
    a = te.placeholder((64,), name="a")
    return text_of(a, topi.negative(a))


@lru_cache
def cubes(count: int) -> str:
    """So many operators in a row, each of which loads its input three times."""
    a = value = te.placeholder((64,), name="a")
    for number in range(count):
        value = te.compute((64,), partial(_cube, value), name=f"cube{number}")
    return text_of(a, value)


def _cube(x: Any, i: Any) -> Any:
    return x[i] * x[i] * x[i]


def text_of(*tensors: Any) -> str:
    """Return a program from its tensors, inputs first."""
    return str(tvm.ir.save_json(tvm.IRModule({"main": te.create_prim_func(list(tensors))})))
