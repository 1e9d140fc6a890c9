"""Replace resizes that TVM lacks by products with matrices from ONNX's reference evaluator."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from graphc.onnx.node_rewriter import NodeRewriter

# Coordinate modes that TVM computes like ONNX.
_PLACED = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")


def resize(form: NodeRewriter) -> None:
    """Replace a Resize unlike TVM's by products. Raises ValueError for crops, varying sizes."""
    sizes = form.sizes(0)
    if sizes is None or form.kind(0) != TensorProto.FLOAT or _is_plain_resize(form, sizes):
        return
    if form.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise ValueError("its Resize keeps the aspect ratio: export it with sizes alone")
    scales, target_sizes = form.value(2), form.value(3)
    wanted_sizes = scales if scales is not None and scales.size else target_sizes
    if wanted_sizes is None or form.attribute("coordinate_transformation_mode", b"") == b"tf_crop_and_resize":
        raise ValueError("the sizes of its Resize are not constant, or it crops")
    axes = [axis % len(sizes) for axis in form.attribute("axes", range(len(sizes)))]
    matrices, data = _resize_matrices(form, sizes, axes, wanted_sizes), form.node.input[0]
    for axis, matrix in matrices:
        data = _along(form, data, axis, len(sizes), matrix)
    form.write("Identity", data, name=form.node.output[0])


def _resize_matrices(
    form: NodeRewriter, sizes: Sequence[int], axes: Sequence[int], targets: Any
) -> list[tuple[int, Any]]:
    """Return each axis whose size changes, with its matrix of interpolation weights."""
    matrices, scaled = [], targets.dtype.kind == "f"
    for target, axis in zip(targets, axes, strict=True):
        unchanged = 1 if scaled else sizes[axis]
        if target == unchanged:
            continue
        both = np.array([target, unchanged], targets.dtype)
        target_inputs = (both, None) if scaled else (None, both)
        matrix = form.reference(np.eye(sizes[axis], dtype="float32"), None, *target_inputs, without="axes")
        matrices.append((axis, np.asarray(matrix, "float32")))
    return matrices


def _along(form: NodeRewriter, data: str, axis: int, ndim: int, matrix: Any) -> str:
    weights = form.constant(np.ascontiguousarray(matrix.T if axis != ndim - 2 else matrix))
    result: str
    if axis == ndim - 2:
        result = form.write("MatMul", weights, data)
    elif axis == ndim - 1:
        result = form.write("MatMul", data, weights)
    else:
        order = [at for at in range(ndim) if at != axis] + [axis]
        product = form.write("MatMul", form.write("Transpose", data, perm=order), weights)
        result = form.write("Transpose", product, perm=[order.index(at) for at in range(ndim)])
    return result


def _is_plain_resize(form: NodeRewriter, sizes: Sequence[int]) -> bool:
    """Return whether TVM computes the Resize like ONNX."""
    mode, where = form.attribute("mode", b"nearest"), "coordinate_transformation_mode"
    is_odd = any(form.attribute(name, None) for name in ("axes", "antialias", "exclude_outside"))
    keeps_ratio = form.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch"
    if is_odd or keeps_ratio or form.attribute(where, b"half_pixel").decode() not in _PLACED:
        return False
    scales = form.value(2)
    if scales is None or not scales.size or mode == b"nearest":
        return mode != b"cubic" or form.value(3) is None
    scaled = [size * scale for size, scale in zip(sizes, scales, strict=True)]
    return mode == b"linear" and all(abs(each - round(each)) < 1e-3 for each in scaled) and min(scaled) > 1
