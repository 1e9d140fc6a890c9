"""Replace Fourier transforms, and resizes that TVM lacks, by products with matrices.

ONNX's reference evaluator computes each matrix by transforming an identity matrix.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto

from mallorn.graphc.onnx.node_rewriter import NodeRewriter

# Longer transforms would need many megabytes of weights; callers can use a fast algorithm.
LARGEST_BYTES = 1 << 26


def replace_dft(form: NodeRewriter) -> None:
    """Replace a DFT by a matrix product. Raises ValueError if sizes are unknown or large."""
    sizes, length = form.sizes(0), form.value(1)
    # The axis is an attribute before opset 20, an input (or -2) since.
    axis: int | None = int(form.attribute("axis", 1)) if form.opset < 20 else -2
    if form.opset >= 20 and form.has_input(2):
        axis_input = form.value(2)
        axis = None if axis_input is None else int(np.ravel(axis_input)[0])
    if sizes is None or axis is None or (length is None and form.has_input(1)):
        raise ValueError("the input sizes, length or axis of the DFT are not constant")
    axis, parts = axis % len(sizes), sizes[-1]
    _check_matrix_size(
        form, (sizes[axis] * parts, 2 * (sizes[axis] if length is None else int(np.ravel(length)[0])))
    )
    basis = np.eye(sizes[axis] * parts, dtype="float32").reshape(-1, sizes[axis], parts)
    spectrum = form.evaluate_reference(basis, length, excluded_attribute="axis")
    matrix = np.ascontiguousarray(spectrum.reshape(len(basis), -1).astype("float32"))

    order = [dim for dim in range(len(sizes) - 1) if dim != axis] + [axis, len(sizes) - 1]
    outer_sizes = [sizes[dim] for dim in order[:-2]]
    rows = form.write("Transpose", form.node.input[0], perm=order)
    rows = form.write("Reshape", rows, form.integers(prod(outer_sizes), -1))
    result = form.write("MatMul", rows, form.constant(matrix))
    result = form.write("Reshape", result, form.integers(*outer_sizes, *spectrum.shape[1:]))
    inverse_order = [order.index(dim) for dim in range(len(sizes))]
    form.write("Transpose", result, perm=inverse_order, name=form.node.output[0])


def replace_stft(form: NodeRewriter) -> None:
    """Replace STFT by a convolution. Raises ValueError for unknown, long or complex data."""
    sizes, step, window, length = form.sizes(0), *(form.value(index) for index in (1, 2, 3))
    if length is None and window is not None:
        length = len(window)
    if sizes is None or step is None or length is None or (window is None and form.has_input(2)):
        raise ValueError("the sizes, step and window of the STFT must be constant")
    if len(sizes) > 2 and sizes[2:] != (1,):
        raise ValueError("the input of the STFT is complex; only real input is supported")
    frame = int(np.ravel(length)[0])
    _check_matrix_size(form, (frame, 2 * frame))
    basis = np.eye(frame, dtype="float32")[:, :, None]
    spectrum = form.evaluate_reference(basis, np.array(1), window, np.array(frame), excluded_attribute="")
    bins = spectrum.shape[2]
    kernel = np.ascontiguousarray(spectrum.reshape(frame, 1, 2 * bins).transpose(2, 1, 0).astype("float32"))

    if len(sizes) == 2:  # onnxruntime also takes a signal without the last axis
        signal = form.write("Reshape", form.node.input[0], form.integers(sizes[0], 1, sizes[1]))
    else:
        signal = form.write("Transpose", form.node.input[0], perm=[0, 2, 1])
    strides = [int(np.ravel(step)[0])]
    result = form.write("Conv", signal, form.constant(kernel), kernel_shape=[frame], strides=strides)
    result = form.write("Reshape", result, form.integers(sizes[0], bins, 2, -1))
    form.write("Transpose", result, perm=[0, 3, 1, 2], name=form.node.output[0])


def _check_matrix_size(form: NodeRewriter, shape: tuple[int, int]) -> None:
    if 4 * prod(shape) > LARGEST_BYTES:
        raise ValueError(f"the {form.node.op_type} of {shape[0]} numbers is too long: compute that outside")


# Coordinate modes that TVM computes like ONNX.
_PLACED = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")


def resize(form: NodeRewriter) -> None:
    """Replace a Resize that TVM computes unlike ONNX by a matrix product per resized axis.

    Raises ValueError if it crops, keeps the aspect ratio, or has unknown target sizes.
    """
    sizes = form.sizes(0)
    if sizes is None or form.input_element_type(0) != TensorProto.FLOAT or _is_plain_resize(form, sizes):
        return
    if form.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise ValueError("the Resize needs keep_aspect_ratio_policy=stretch")
    scales, target_sizes = form.value(2), form.value(3)
    wanted_sizes = scales if scales is not None and scales.size else target_sizes
    if wanted_sizes is None or form.attribute("coordinate_transformation_mode", b"") == b"tf_crop_and_resize":
        raise ValueError("the sizes of the Resize are not constant, or the Resize crops (tf_crop_and_resize)")
    axes = [axis % len(sizes) for axis in form.attribute("axes", range(len(sizes)))]
    data, uses_scales = form.node.input[0], wanted_sizes.dtype.kind == "f"
    for target, axis in zip(wanted_sizes, axes, strict=True):
        unchanged = 1 if uses_scales else sizes[axis]
        if target == unchanged:
            continue
        targets = np.array([target, unchanged], wanted_sizes.dtype)
        target_inputs = (targets, None) if uses_scales else (None, targets)
        identity = np.eye(sizes[axis], dtype="float32")
        interpolation = form.evaluate_reference(identity, None, *target_inputs, excluded_attribute="axes")
        data = _multiply_axis(form, data, axis, len(sizes), np.asarray(interpolation, "float32"))
    form.write("Identity", data, name=form.node.output[0])


def _multiply_axis(form: NodeRewriter, data: str, axis: int, ndim: int, matrix: Any) -> str:
    """Append nodes that multiply data by a matrix along an axis; return their result."""
    weights = form.constant(np.ascontiguousarray(matrix.T if axis != ndim - 2 else matrix))
    if axis == ndim - 2:
        return form.write("MatMul", weights, data)
    if axis == ndim - 1:
        return form.write("MatMul", data, weights)
    order = [dim for dim in range(ndim) if dim != axis] + [axis]
    product = form.write("MatMul", form.write("Transpose", data, perm=order), weights)
    return form.write("Transpose", product, perm=[order.index(dim) for dim in range(ndim)])


def _is_plain_resize(form: NodeRewriter, sizes: Sequence[int]) -> bool:
    """Return whether TVM computes the Resize like ONNX."""
    mode, mode_name = form.attribute("mode", b"nearest"), "coordinate_transformation_mode"
    is_odd = any(form.attribute(name, None) for name in ("axes", "antialias", "exclude_outside"))
    keeps_ratio = form.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch"
    if is_odd or keeps_ratio or form.attribute(mode_name, b"half_pixel").decode() not in _PLACED:
        return False
    scales = form.value(2)
    if scales is None or not scales.size or mode == b"nearest":
        return mode != b"cubic" or form.value(3) is None
    scaled = [size * scale for size, scale in zip(sizes, scales, strict=True)]
    return (
        mode == b"linear" and all(abs(target - round(target)) < 1e-3 for target in scaled) and min(scaled) > 1
    )
