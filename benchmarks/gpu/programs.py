"""Build the tensor program of each task, which the product schedules."""

from typing import Any

import tvm
from tvm import te, topi
from tvm.tirx import all as both
from tvm.tirx import const, if_then_else

from benchmarks.gpu.tasks import BATCH, CONVOLUTION, DEPTHWISE, NORM, PRODUCT, Task, shapes

_EPSILON = 1e-5


def module_of(task: Task) -> Any:
    """Return a module with the task's program as its function `main`."""
    inputs = [te.placeholder(shape, task.dtype, f"p{place}") for place, shape in enumerate(shapes(task)[:-1])]
    function = te.create_prim_func([*inputs, _result(task, inputs)])
    return tvm.IRModule({"main": function.with_attr({"global_symbol": "main", "tirx.noalias": True})})


def _result(task: Task, inputs: list[Any]) -> Any:
    if task.kind == PRODUCT:
        return _product(task, *inputs)
    if task.kind == CONVOLUTION:
        return _convolution(task, *inputs)
    if task.kind == DEPTHWISE:
        return _depthwise(task, *inputs)
    if task.kind == NORM:
        return topi.nn.layer_norm(*inputs, [1], _EPSILON)
    if task.kind == BATCH:
        return _attention(task, *inputs)
    return topi.nn.softmax(*inputs)


def _product(task: Task, a: Any, b: Any) -> Any:
    m, n, k = task.sizes
    r = te.reduce_axis((0, k), "r")
    return te.compute(
        (m, n), lambda i, j: te.sum(a[i, r].astype(task.sums) * b[r, j].astype(task.sums), r), "c"
    )


def _convolution(task: Task, x: Any, w: Any) -> Any:
    images, height, channels_in, channels_out = task.sizes
    border = te.compute(
        (images, height + 2, height + 2, channels_in),
        lambda n, i, j, c: if_then_else(
            both(i >= 1, i <= height, j >= 1, j <= height), x[n, i - 1, j - 1, c], const(0, task.dtype)
        ),
        "border",
    )
    di, dj, r = (
        te.reduce_axis((0, 3), "di"),
        te.reduce_axis((0, 3), "dj"),
        te.reduce_axis((0, channels_in), "r"),
    )
    return te.compute(
        (images, height, height, channels_out),
        lambda n, i, j, c: te.sum(
            border[n, i + di, j + dj, r].astype(task.sums) * w[di, dj, r, c].astype(task.sums), [di, dj, r]
        ),
        "c",
    )


def _depthwise(task: Task, x: Any, w: Any) -> Any:
    images, channels, height = task.sizes
    border = te.compute(
        (images, channels, height + 2, height + 2),
        lambda n, c, i, j: if_then_else(
            both(i >= 1, i <= height, j >= 1, j <= height), x[n, c, i - 1, j - 1], const(0, task.dtype)
        ),
        "border",
    )
    di, dj = te.reduce_axis((0, 3), "di"), te.reduce_axis((0, 3), "dj")
    return te.compute(
        (images, channels, height, height),
        lambda n, c, i, j: te.sum(border[n, c, i + di, j + dj] * w[c, di, dj], [di, dj]),
        "c",
    )


def _attention(task: Task, q: Any, k: Any, v: Any) -> Any:
    heads, tokens, width = task.sizes
    r, s = te.reduce_axis((0, width), "r"), te.reduce_axis((0, tokens), "s")
    scores = te.compute((heads, tokens, tokens), lambda h, i, j: te.sum(q[h, i, r] * k[h, j, r], r), "scores")
    scaled = te.compute(
        (heads, tokens, tokens), lambda h, i, j: scores[h, i, j] * const(width**-0.5, task.dtype), "scaled"
    )
    shares = topi.nn.softmax(scaled, axis=2)
    return te.compute((heads, tokens, width), lambda h, i, j: te.sum(shares[h, i, s] * v[h, s, j], s), "c")
