"""The anchor operator is read from structure: names of functions and blocks tell nothing here."""

from collections.abc import Callable
from typing import Any

import pytest
from tvm import te, topi

from mallorn.workers.tvm.programs.program_blocks import blocks_of, find_main_block, operator_of

Tensors = list[Any]


def tensor(*shape: int, dtype: str = "float32") -> Any:
    return te.placeholder(shape, dtype, name="p")


def matmul() -> Tensors:
    x, w = tensor(4, 8), tensor(8, 16)
    return [x, w, topi.nn.relu(topi.nn.matmul(x, w))]


def batch_matmul() -> Tensors:
    x, w = tensor(3, 4, 8), tensor(3, 16, 8)
    return [x, w, topi.nn.batch_matmul(x, w)]


def convolution(kernel: int, channels: int = 8, groups: int = 1) -> Tensors:
    x, w = (
        tensor(1, 14, 14, channels),
        tensor(kernel, kernel, channels // groups, 16 if groups == 1 else channels),
    )
    made = topi.nn.conv2d_nhwc if groups == 1 else topi.nn.group_conv2d_nhwc
    return [x, w, made(x, w, 1, kernel // 2, 1, *([groups] if groups > 1 else []))]


def nchw() -> Tensors:
    x, w = tensor(1, 8, 14, 14), tensor(16, 8, 3, 3)
    return [x, w, topi.nn.conv2d_nchw(x, w, 2, 1, 1)]


def pool() -> Tensors:
    x = tensor(1, 14, 14, 8)
    return [x, topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max", layout="NHWC")]


def layer_norm() -> Tensors:
    x, gamma, beta = tensor(4, 8), tensor(8), tensor(8)
    return [x, gamma, beta, topi.nn.layer_norm(x, gamma, beta, [1])]


def take() -> Tensors:
    table, index = tensor(100, 8), tensor(5, dtype="int64")
    return [table, index, topi.take(table, index, axis=0)]


def of(made: Any, *inputs: Any) -> Tensors:
    return [*inputs, made]


def pair() -> Tensors:
    x, w, first = convolution(1)
    kernel = tensor(3, 3, 1, 16)
    return [x, w, kernel, topi.nn.group_conv2d_nhwc(first, kernel, 1, 1, 1, 16)]


X = tensor(4, 8)
EXPECTED: dict[str, list[Tensors]] = {
    "matmul": [matmul()],
    "batch_matmul": [batch_matmul()],
    "conv2d": [convolution(3), convolution(1), nchw()],
    "depthwise_conv2d": [convolution(3, groups=8)],
    "group_conv2d": [convolution(3, groups=2)],
    "conv2d-depthwise_conv2d": [pair()],
    "pool": [pool()],
    "layer_norm": [layer_norm()],
    "softmax": [of(topi.nn.softmax(X), X)],
    "reduce": [of(topi.sum(X, axis=1), X), of(topi.max(X, axis=0), X)],
    "gather": [take()],
    "layout": [of(topi.transpose(X), X), of(topi.reshape(X, (2, 16)), X)],
    "elementwise": [of(topi.add(X, X), X), of(topi.tanh(X), X)],
}
CASES = [(name, made) for name, programs in EXPECTED.items() for made in programs]


@pytest.mark.parametrize(("name", "tensors"), CASES, ids=[name for name, _ in CASES])
def test_the_operator(name: str, tensors: Tensors, program_of: Callable[..., Any]) -> None:
    assert operator_of(blocks_of(program_of(*tensors))) == name


def test_the_anchor_is_the_product_even_where_another_block_is_larger(program_of: Callable[..., Any]) -> None:
    x, w = tensor(4, 2), tensor(2, 4)
    wide = topi.broadcast_to(topi.nn.matmul(x, w), (64, 4, 4))
    assert find_main_block(blocks_of(program_of(x, w, wide))).extents == [4, 4, 2]
