"""Replace Fourier transforms by products with matrices from ONNX's reference evaluator."""

from math import prod

import numpy as np

from graphc.onnx.node_rewriter import NodeRewriter

# Longer transforms would need many megabytes of weights; callers can use a fast algorithm.
LARGEST_BYTES = 1 << 26


def transform(form: NodeRewriter) -> None:
    """Replace a DFT by a matrix product. Raises ValueError for unknown or too large sizes."""
    sizes, axis, length = form.sizes(0), _axis(form), form.value(1)
    if sizes is None or axis is None or (length is None and form.given(1)):
        raise ValueError("the sizes of its DFT are not constant")
    axis, parts = axis % len(sizes), sizes[-1]
    _check(form, (sizes[axis] * parts, 2 * (sizes[axis] if length is None else int(np.ravel(length)[0]))))
    basis = np.eye(sizes[axis] * parts, dtype="float32").reshape(-1, sizes[axis], parts)
    spectrum = form.reference(basis, length, without="axis")
    matrix = np.ascontiguousarray(spectrum.reshape(len(basis), -1).astype("float32"))

    order = [at for at in range(len(sizes) - 1) if at != axis] + [axis, len(sizes) - 1]
    others = [sizes[at] for at in order[:-2]]
    rows = form.write("Transpose", form.node.input[0], perm=order)
    rows = form.write("Reshape", rows, form.whole(prod(others), -1))
    result = form.write("MatMul", rows, form.constant(matrix))
    result = form.write("Reshape", result, form.whole(*others, *spectrum.shape[1:]))
    inverse_order = [order.index(at) for at in range(len(sizes))]
    form.write("Transpose", result, perm=inverse_order, name=form.node.output[0])


def short_transforms(form: NodeRewriter) -> None:
    """Replace an STFT by a convolution. Raises ValueError for complex or unknown frames."""
    sizes, step, window, length = form.sizes(0), *(form.value(at) for at in (1, 2, 3))
    if length is None and window is not None:
        length = len(window)
    if sizes is None or step is None or length is None or (window is None and form.given(2)):
        raise ValueError("the frames of its STFT are not constant")
    if len(sizes) != 3 or sizes[2] != 1:
        raise ValueError("its STFT is of complex numbers")
    frame = int(np.ravel(length)[0])
    _check(form, (frame, 2 * frame))
    basis = np.eye(frame, dtype="float32")[:, :, None]
    spectrum = form.reference(basis, np.array(1), window, np.array(frame), without="")
    bins = spectrum.shape[2]
    kernel = np.ascontiguousarray(spectrum.reshape(frame, 1, 2 * bins).transpose(2, 1, 0).astype("float32"))

    signal = form.write("Transpose", form.node.input[0], perm=[0, 2, 1])
    strides = [int(np.ravel(step)[0])]
    result = form.write("Conv", signal, form.constant(kernel), kernel_shape=[frame], strides=strides)
    result = form.write("Reshape", result, form.whole(sizes[0], bins, 2, -1))
    form.write("Transpose", result, perm=[0, 3, 1, 2], name=form.node.output[0])


def _axis(form: NodeRewriter) -> int | None:
    """Return a DFT's axis or None: an attribute before opset 20, an input (or -2) since."""
    if form.opset < 20:
        return int(form.attribute("axis", 1))
    axis = form.value(2)
    return int(np.ravel(axis)[0]) if axis is not None else None if form.given(2) else -2


def _check(form: NodeRewriter, shape: tuple[int, int]) -> None:
    if 4 * prod(shape) > LARGEST_BYTES:
        raise ValueError(
            f"its {form.node.op_type} of {shape[0]} numbers is too long for a product: leave it to the caller"
        )
