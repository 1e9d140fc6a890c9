"""Operators of onnxruntime's own, which its optimiser and its tools for language models write, in ONNX's."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import sqrt
from typing import Any

import numpy as np

DOMAIN = "com.microsoft"
HOMELESS = frozenset(("SimplifiedLayerNormalization",))  # written as if they were ONNX's
caches = import_module(f"{__package__}.caches" if __package__ else "caches")


def _rms_norm(form: Any) -> None:
    """SimplifiedLayerNormalization: numbers over the root of the mean of their squares."""
    if form.attribute("axis", -1) not in (-1, (len(form.sizes(0) or ()) or 1) - 1):
        raise ValueError("its SimplifiedLayerNormalization is not over the last axis")
    if form.has(1):
        raise ValueError("its SimplifiedLayerNormalization gives what training needs")
    normalised(form, form.node.input[0], form.node.input[1])


def _skip_rms_norm(form: Any) -> None:
    """SkipSimplifiedLayerNormalization: the same of a sum, which others read as well."""
    data, skip, scale, *bias = form.node.input
    if form.has(1) or form.has(2):
        raise ValueError("its SkipSimplifiedLayerNormalization gives what training needs")
    if bias and bias[0]:
        data = form.write("Add", data, bias[0])
    summed = form.write("Add", data, skip, name=form.node.output[3] if form.has(3) else "")
    normalised(form, summed, scale)


def normalised(form: Any, data: str, scale: str, axes: Sequence[int] = (-1,)) -> None:
    """Write numbers over the root of the mean of their squares along axes, times a scale."""
    squares = form.write("Mul", data, data)
    if form.opset < 18:
        mean = form.write("ReduceMean", squares, axes=list(axes), keepdims=1)
    else:
        mean = form.write("ReduceMean", squares, form.whole(*axes), keepdims=1)
    root = form.write("Sqrt", form.write("Add", mean, form.number(form.attribute("epsilon", 1e-5))))
    form.write("Mul", form.write("Div", data, root), scale, name=form.node.output[0])


def _gelu(form: Any) -> None:
    """Gelu and BiasGelu, by the error function."""
    data, *bias = form.node.input
    if bias:
        data = form.write("Add", data, bias[0])
    curve = form.write("Erf", form.write("Mul", data, form.number(sqrt(0.5))))
    half = form.write("Mul", data, form.number(0.5))
    form.write("Mul", half, form.write("Add", curve, form.number(1.0)), name=form.node.output[0])


def _fast_gelu(form: Any) -> None:
    """FastGelu, by the hyperbolic tangent."""
    data, *bias = form.node.input
    if bias and bias[0]:
        data = form.write("Add", data, bias[0])
    cube = form.write("Mul", form.write("Mul", data, data), data)
    inner = form.write("Add", data, form.write("Mul", cube, form.number(0.044715)))
    curve = form.write("Tanh", form.write("Mul", inner, form.number(sqrt(2 / np.pi))))
    half = form.write("Mul", data, form.number(0.5))
    form.write("Mul", half, form.write("Add", curve, form.number(1.0)), name=form.node.output[0])


def _quick_gelu(form: Any) -> None:
    (data,) = form.node.input
    gate = form.write("Sigmoid", form.write("Mul", data, form.number(form.attribute("alpha", 1.702))))
    form.write("Mul", data, gate, name=form.node.output[0])


def _product(form: Any) -> None:
    """FusedMatMul: a factor, and transposed matrices."""
    if form.attribute("transBatchA", 0) or form.attribute("transBatchB", 0):
        raise ValueError("its FusedMatMul transposes batches")
    given = []
    for at, name in enumerate(form.node.input):
        sizes = form.sizes(at)
        if form.attribute(f"trans{'AB'[at]}", 0):
            if sizes is None:
                raise ValueError("the sizes of its FusedMatMul are not known")
            axes = list(range(len(sizes)))
            name = form.write("Transpose", name, perm=[*axes[:-2], axes[-1], axes[-2]])
        given.append(name)
    alpha = form.attribute("alpha", 1.0)
    if alpha != 1.0:
        given[0] = form.write("Mul", given[0], form.number(alpha))
    form.write("MatMul", *given, name=form.node.output[0])


RULES: Mapping[str, Callable[[Any], None]] = {
    "BiasGelu": _gelu,
    "FastGelu": _fast_gelu,
    "FusedMatMul": _product,
    "Gelu": _gelu,
    "GroupQueryAttention": caches.attention,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _rms_norm,
    "SkipSimplifiedLayerNormalization": _skip_rms_norm,
}
