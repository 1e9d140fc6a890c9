"""Resizes that TVM has not: axis by axis a product with what ONNX's own reference makes of the identity."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from graphc.onnx.node_rewriter import NodeRewriter

# Where TVM looks for a place's neighbours as ONNX does.
_PLACED = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")


def resize(form: NodeRewriter) -> None:
    """Write products in the place of a Resize that TVM would compute otherwise. Raises ValueError."""
    sizes = form.sizes(0)
    if sizes is None or form.kind(0) != TensorProto.FLOAT or _is_plain_resize(form, sizes):
        return
    if form.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise ValueError("its Resize keeps the aspect ratio: export it with sizes alone")
    scales, wanted = form.value(2), form.value(3)
    asked = scales if scales is not None and scales.size else wanted
    if asked is None or form.attribute("coordinate_transformation_mode", b"") == b"tf_crop_and_resize":
        raise ValueError("the sizes of its Resize are not constant, or it crops")
    axes = [axis % len(sizes) for axis in form.attribute("axes", range(len(sizes)))]
    changed, data = _changed(form, sizes, axes, asked), form.node.input[0]
    for axis, matrix in changed:
        data = _along(form, data, axis, len(sizes), matrix)
    form.write("Identity", data, name=form.node.output[0])


def _changed(
    form: NodeRewriter, sizes: Sequence[int], axes: Sequence[int], asked: Any
) -> list[tuple[int, Any]]:
    """Axes whose size changes, with the weights of every old place in every new one."""
    found, scaled = [], asked.dtype.kind == "f"
    for place, axis in zip(asked, axes, strict=True):
        same = 1 if scaled else sizes[axis]
        if place == same:
            continue
        both = np.array([place, same], asked.dtype)
        given = (both, None) if scaled else (None, both)
        matrix = form.reference(np.eye(sizes[axis], dtype="float32"), None, *given, without="axes")
        found.append((axis, np.asarray(matrix, "float32")))
    return found


def _along(form: NodeRewriter, data: str, axis: int, ndim: int, matrix: Any) -> str:
    weights = form.constant(np.ascontiguousarray(matrix.T if axis != ndim - 2 else matrix))
    found: str
    if axis == ndim - 2:
        found = form.write("MatMul", weights, data)
    elif axis == ndim - 1:
        found = form.write("MatMul", data, weights)
    else:
        order = [at for at in range(ndim) if at != axis] + [axis]
        product = form.write("MatMul", form.write("Transpose", data, perm=order), weights)
        found = form.write("Transpose", product, perm=[order.index(at) for at in range(ndim)])
    return found


def _is_plain_resize(form: NodeRewriter, sizes: Sequence[int]) -> bool:
    """Whether TVM computes it as ONNX does."""
    mode, where = form.attribute("mode", b"nearest"), "coordinate_transformation_mode"
    odd = any(form.attribute(name, None) for name in ("axes", "antialias", "exclude_outside"))
    kept = form.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch"
    if odd or kept or form.attribute(where, b"half_pixel").decode() not in _PLACED:
        return False
    scales = form.value(2)
    if scales is None or not scales.size or mode == b"nearest":
        return mode != b"cubic" or form.value(3) is None
    whole = [size * scale for size, scale in zip(sizes, scales, strict=True)]
    return mode == b"linear" and all(abs(each - round(each)) < 1e-3 for each in whole) and min(whole) > 1
