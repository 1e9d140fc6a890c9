"""Rewrite forms of ONNX operators that TVM's importer rejects or converts incorrectly.

Some wrong conversions are silent, for example of a Resize that anti-aliases.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from mallorn.graphc.onnx import dft_and_resize_to_matmul, inline_functions, lower_contrib_operators
from mallorn.graphc.onnx.node_rewriter import KnownValues, NodeRewriter

_FIRST_STATE = 5  # input index, after data, weights, recurrent weights, bias and lengths


def rewrite_batch_first_rnn(form: NodeRewriter) -> None:
    """Transpose data and states of an LSTM, GRU or RNN whose batch axis is first."""
    if not form.attribute("layout", 0):
        return
    transposed_inputs = (0, _FIRST_STATE, _FIRST_STATE + 1)
    inputs = [
        form.write("Transpose", name, perm=[1, 0, 2]) if index in transposed_inputs and name else name
        for index, name in enumerate(form.node.input)
    ]
    names = [f"{name}/layout" if name else "" for name in form.node.output]
    form.copy(inputs, names, layout=None)
    orders = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
    for name, output, order in zip(names, form.node.output, orders, strict=False):
        if name:
            form.write("Transpose", name, perm=order, name=output)


def space_to_depth(form: NodeRewriter) -> None:
    """Rewrite SpaceToDepth in mode CRD by reshapes. Raises ValueError for unknown sizes."""
    sizes, block = form.sizes(0), form.attribute("blocksize", 1)
    if form.attribute("mode", b"DCR") == b"DCR":
        return
    if sizes is None:
        raise ValueError("the sizes of the SpaceToDepth with mode=CRD are not constant")
    batch, channels, height, width = sizes
    split = [batch, channels, height // block, block, width // block, block]
    blocks = form.write("Reshape", form.node.input[0], form.integers(*split))
    blocks = form.write("Transpose", blocks, perm=[0, 1, 3, 5, 2, 4])
    deep = [batch, channels * block**2, height // block, width // block]
    form.write("Reshape", blocks, form.integers(*deep), name=form.node.output[0])


def reverse_sequences(form: NodeRewriter) -> None:
    """Lower ReverseSequence to a gather of elements. Raises ValueError for unknown sizes."""
    sizes = form.sizes(0)
    time, batch = form.attribute("time_axis", 0), form.attribute("batch_axis", 1)
    if sizes is None:
        raise ValueError("the sizes of the ReverseSequence are not constant")
    ahead = form.constant(np.arange(sizes[time], dtype="int64").reshape(_along(time, sizes)))
    ends = form.write("Cast", form.node.input[1], to=TensorProto.INT64)
    ends = form.write("Reshape", ends, form.integers(*_along(batch, sizes)))
    mirrored = form.write("Sub", form.write("Sub", ends, form.integers(1)), ahead)
    chosen = form.write("Where", form.write("Less", ahead, ends), mirrored, ahead)
    indices = form.write("Expand", chosen, form.integers(*sizes))
    form.write("GatherElements", form.node.input[0], indices, axis=time, name=form.node.output[0])


def _along(axis: int, sizes: Sequence[int]) -> list[int]:
    """Return a shape whose other axes broadcast."""
    return [size if at == axis else 1 for at, size in enumerate(sizes)]


def lower_col2im(form: NodeRewriter) -> None:
    """Lower Col2Im to a transposed convolution. Raises ValueError for unknown sizes."""
    sizes, image, block = form.sizes(0), form.value(1), form.value(2)
    if sizes is None or image is None or block is None:
        raise ValueError("the sizes of the Col2Im are not constant")
    axes, area = range(len(image)), int(np.prod(block))
    default = [1 for _ in axes]
    strides, dilations = form.attribute("strides", default), form.attribute("dilations", default)
    pads = form.attribute("pads", [0, 0] * len(image))
    extents = [
        int(image[a]) + pads[a] + pads[a + len(image)] - dilations[a] * (int(block[a]) - 1) - 1 for a in axes
    ]
    steps = [extent // stride + 1 for extent, stride in zip(extents, strides, strict=True)]
    remainders = [extent % stride for extent, stride in zip(extents, strides, strict=True)]
    channels = sizes[1] // area
    data = form.write("Reshape", form.node.input[0], form.integers(sizes[0], sizes[1], *steps))
    identity = np.eye(area, dtype="float32").reshape(area, 1, *map(int, block))
    kernel = np.tile(identity, (channels, 1, *default))
    form.write(
        "ConvTranspose", data, form.constant(kernel), name=form.node.output[0], group=channels,
        strides=strides, dilations=dilations, pads=pads, output_padding=remainders,
    )  # fmt: skip


def upsample(form: NodeRewriter) -> None:
    scales = form.value(1)
    if form.opset < 9 or scales is None:
        return
    _write_resize(form, scales, "floor")


def _write_resize(form: NodeRewriter, scales: Any, nearest_mode: str) -> None:
    ends = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": nearest_mode}
    mode = form.attribute("mode", b"nearest").decode()
    inputs = form.node.input[0], "", form.constant(scales)
    form.write("Resize", *inputs, mode=mode, name=form.node.output[0], **ends)


_WHOLE = (TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64)
_UNSIGNED = (TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64)
_UNSORTED = (TensorProto.INT16, TensorProto.UINT16, TensorProto.UINT32)


def rewrite(model: ModelProto, only: Container[str] | None = None) -> ModelProto:
    """Return the model in forms that TVM supports, or with only those operators rewritten that
    round. Raises ValueError if no node is rewritten and a node has no supported form; other
    rewrites may make its sizes known."""
    values, rewriters = KnownValues(model), {}
    contrib = lower_contrib_operators
    contrib_rules = contrib.RULES if only is None else contrib.UNROUNDED
    failures: list[ValueError] = []
    for index, node in enumerate(model.graph.node):
        rule = _RULES.get(node.op_type) if node.domain in inline_functions.DOMAINS else None
        if node.domain == contrib.DOMAIN or node.op_type in contrib.HOMELESS:
            rule = rule or contrib_rules.get(node.op_type)
        if rule is not None and (only is None or node.op_type in only):
            rewriter = NodeRewriter(node, values)
            try:
                rule(rewriter)
            except ValueError as error:
                failures.append(error)
            else:
                if rewriter.nodes:
                    rewriters[index] = rewriter
    if not rewriters:
        if failures:
            raise failures[0]
        return model
    result = ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    for index, node in enumerate(model.graph.node):
        form = rewriters.get(index)
        result.graph.node.extend(form.nodes if form else [node])
        result.graph.initializer.extend(form.constants if form else ())
    return result


def _require_inference_batch_norm(form: NodeRewriter) -> None:
    # Before opset 14, more results than one mean training, as onnxruntime reads them.
    if form.attribute("training_mode", 0) or form.has_output(1):
        raise ValueError("the BatchNormalization is in training mode: export for evaluation")


def _drop_empty_parts(form: NodeRewriter) -> None:
    """Leave out empty parts of a Concat: TVM cannot load a constant without elements."""
    kept = [name for at, name in enumerate(form.node.input) if 0 not in (form.sizes(at) or ())]
    if 0 < len(kept) < len(form.node.input):
        form.copy(kept)


def _count_nonzero(form: NodeRewriter) -> None:
    """Rewrite the shape of a NonZero, of which programs read the count alone."""
    source, is_whole = form.producer(0), form.attribute("end", None) is None
    if source is None or source.op_type != "NonZero" or form.attribute("start", 0) or not is_whole:
        return
    data = source.input[0]
    ones = form.write("Cast", form.write("Cast", data, to=TensorProto.BOOL), to=TensorProto.INT64)
    count = form.write("ReduceSum", form.write("Reshape", ones, form.integers(-1)), keepdims=1)
    rank = form.write("Shape", form.write("Shape", data))
    form.write("Concat", rank, count, axis=0, name=form.node.output[0])


def _slice_by_attributes(form: NodeRewriter) -> None:
    """Rewrite a Slice of opset 9 or older, whose limits are attributes."""
    starts, ends = form.attribute("starts", None), form.attribute("ends", None)
    if starts is not None and ends is not None:
        axes = form.attribute("axes", range(len(starts)))
        limits = [form.integers(*numbers) for numbers in (starts, ends, axes)]
        form.write("Slice", form.node.input[0], *limits, name=form.node.output[0])


def _resize(form: NodeRewriter) -> None:
    """Rewrite a Resize of opset 10, whose second input is scales, or one that TVM lacks."""
    if len(form.node.input) != 2:
        dft_and_resize_to_matmul.resize(form)
        return
    if (scales := form.value(1)) is None:
        raise ValueError("the scales of the Resize are not constant")
    _write_resize(form, scales, "floor" if scales.min() >= 1 else "ceil")


def _dropout(form: NodeRewriter) -> None:
    has_training_input = len(form.node.input) > 2 and form.node.input[2]
    training = form.value(2)
    if has_training_input and (training is None or training.any()):
        raise ValueError("the Dropout is in training mode: export for evaluation")
    if form.has_output(1):
        data, mask = form.node.input[0], form.node.output[1]
        form.write("Identity", data, name=form.node.output[0])
        form.write("Expand", form.constant(np.array(True)), form.write("Shape", data), name=mask)


def _is_inf(form: NodeRewriter) -> None:
    positive, negative = (form.attribute(f"detect_{side}", 1) for side in ("positive", "negative"))
    if positive and negative:
        return
    (data,), (result,) = form.node.input, form.node.output
    if not positive and not negative:
        raise ValueError("the IsInf detects neither infinity: use the constant false")
    form.write("Equal", data, form.number(np.inf if positive else -np.inf), name=result)


def _resolve_conv_transpose_padding(form: NodeRewriter) -> None:
    """Replace a ConvTranspose's attribute output_shape by the paddings that give it."""
    output_sizes, sizes, kernel = form.attribute("output_shape", None), form.sizes(0), form.sizes(1)
    if not output_sizes or sizes is None or kernel is None:
        return
    axes = range(len(sizes) - 2)
    units, output_sizes = [1] * len(axes), output_sizes[-len(axes) :]
    strides, dilations = form.attribute("strides", units), form.attribute("dilations", units)
    output_padding = form.attribute("output_padding", [0 for _ in axes])
    full = [
        strides[a] * (sizes[a + 2] - 1) + output_padding[a] + (kernel[a + 2] - 1) * dilations[a] + 1
        for a in axes
    ]
    excess = [size - target for size, target in zip(full, output_sizes, strict=True)]
    upper = form.attribute("auto_pad", b"NOTSET") == b"SAME_UPPER"
    low = [size // 2 if upper else size - size // 2 for size in excess]
    high = [size - first for size, first in zip(excess, low, strict=True)]
    if min(excess) < 0:  # zeros after the computed output
        output_padding = [zeros - min(0, size) for zeros, size in zip(output_padding, excess, strict=True)]
        low, high = ([max(0, size) for size in side] for side in (low, high))
    form.copy(output_shape=None, auto_pad=None, pads=[*low, *high], output_padding=output_padding)


def _power(form: NodeRewriter) -> None:
    """Cast exponents to the base's type; compute integer powers in float64."""
    base, exponent = form.input_element_type(0), form.input_element_type(1)
    if not base or not exponent or (base == exponent and base not in _WHOLE):
        return
    wide_kind = TensorProto.DOUBLE if base in _WHOLE else base
    operands = [form.write("Cast", name, to=wide_kind) for name in form.node.input]
    if base in _WHOLE:
        form.write("Cast", form.write("Pow", *operands), name=form.node.output[0], to=base)
    else:
        form.write("Pow", *operands, name=form.node.output[0])


def _lower_lp_normalization(form: NodeRewriter) -> None:
    """Lower LpNormalization: divide each row by its norm."""
    (data,), axis, order = form.node.input, form.attribute("axis", -1), form.attribute("p", 2)
    squared = form.write("Mul", data, data) if order == 2 else form.write("Abs", data)
    total = form.write_along("ReduceSum", squared, axis, keepdims=1)
    length = form.write("Sqrt", total) if order == 2 else total
    dtype = helper.tensor_dtype_to_np_dtype(form.input_element_type(0) or TensorProto.FLOAT)
    least = form.constant(np.finfo(dtype).tiny)  # a row of zeros has norm 0 and stays zero
    form.write("Div", data, form.write("Max", length, least), name=form.node.output[0])


def _one_hot(form: NodeRewriter) -> None:
    """Lower OneHot to comparisons with all indices; negative ones count from the end."""
    depth, sizes = form.value(1), form.sizes(0)
    if depth is None or sizes is None:
        raise ValueError("the depth of the OneHot is not constant")
    count, axis = int(np.ravel(depth)[0]), form.attribute("axis", -1) % (len(sizes) + 1)
    shape = [1] * (len(sizes) + 1)
    shape[axis] = count
    indices = form.write("Cast", form.node.input[0], to=TensorProto.INT64)
    wide = form.write_along("Unsqueeze", indices, axis)
    places = np.arange(count, dtype="int64").reshape(shape)
    is_equal = form.write("Equal", wide, form.constant(places))
    from_the_end = form.write("Equal", wide, form.constant(places - count))
    values = form.value(2)
    if values is None:
        cold, hot = (
            form.write("Gather", form.node.input[2], form.constant(np.array(index, "int64")))
            for index in (0, 1)
        )
    else:
        cold, hot = (form.constant(values[index]) for index in (0, 1))
    form.write("Where", form.write("Or", is_equal, from_the_end), hot, cold, name=form.node.output[0])


def _require_constant_nms_limits(form: NodeRewriter) -> None:
    """Raise ValueError unless NonMaxSuppression's limits are constant: TVM ignores others."""
    limits = [index for index, name in enumerate(form.node.input) if index > 1 and name]
    if any(form.value(index) is None for index in limits):
        raise ValueError("the limits of the NonMaxSuppression are not constant")


def _require_average_roi_align(form: NodeRewriter) -> None:
    if form.attribute("mode", b"avg") != b"avg":
        raise ValueError("the RoiAlign has mode=max: export the model with mode=avg")


def _lower_eye_like(form: NodeRewriter) -> None:
    """Lower EyeLike to a constant. Raises ValueError if its sizes are not constant."""
    sizes, kind = form.sizes(0), form.attribute("dtype", form.input_element_type(0) or TensorProto.FLOAT)
    if sizes is None:
        raise ValueError("the sizes of the EyeLike are not constant")
    rows, columns = sizes
    eye = np.eye(rows, columns, form.attribute("k", 0), dtype=helper.tensor_dtype_to_np_dtype(kind))
    form.write("Identity", form.constant(eye), name=form.node.output[0])


def _rewrite_mod(form: NodeRewriter) -> None:
    """Rewrite float Mod as fmod=1, which handles infinities, and correct its sign."""
    kind = form.input_element_type(0)
    if form.attribute("fmod", 0) or not kind or kind in _WHOLE or kind in _UNSIGNED:
        return
    data, divisor = form.node.input
    zero = form.number(0)
    remainder = form.write("Mod", data, divisor, fmod=1)
    differ = form.write("Xor", form.write("Less", remainder, zero), form.write("Less", divisor, zero))
    is_nonzero = form.write("Not", form.write("Equal", remainder, zero))
    needs_correction = form.write("And", differ, is_nonzero)
    corrected = form.write("Add", remainder, divisor)
    form.write("Where", needs_correction, corrected, remainder, name=form.node.output[0])


def _boolean_extremum(form: NodeRewriter) -> None:
    if form.input_element_type(0) == TensorProto.BOOL:
        integers = form.write("Cast", form.node.input[0], to=TensorProto.INT32)
        result = form.node.output[0]
        form.copy([integers, *form.node.input[1:]], [f"{result}/whole"])
        form.write("Cast", f"{result}/whole", to=TensorProto.BOOL, name=result)


def _cast_topk_integers(form: NodeRewriter) -> None:
    """Cast a TopK's integers to int64 if TVM cannot sort them. Raises ValueError for uint64."""
    kind, (values, *places) = form.input_element_type(0), form.node.output
    if kind == TensorProto.UINT64:
        raise ValueError("TVM cannot sort uint64: cast to int64 before the TopK")
    if kind in _UNSORTED:
        wide = form.write("Cast", form.node.input[0], to=TensorProto.INT64)
        form.copy([wide, *form.node.input[1:]], [f"{wide}/largest", *places])
        form.write("Cast", f"{wide}/largest", name=values, to=kind)


def _compress(form: NodeRewriter) -> None:
    """Lower a Compress with a constant condition to a Gather of what is kept."""
    condition, data, axis = form.value(1), form.node.input[0], form.attribute("axis", None)
    if condition is None:
        return
    if axis is None:
        data = form.write("Reshape", data, form.integers(-1))
    places = form.integers(*np.flatnonzero(condition))
    form.write("Gather", data, places, axis=axis or 0, name=form.node.output[0])


def _make_axis_positive(form: NodeRewriter) -> None:
    """Count a negative axis from the front; TVM refuses it before opset 11."""
    sizes, axis = form.sizes(0), form.attribute("axis", 0)
    if sizes is not None and axis < 0 and form.opset < 11:
        form.copy(axis=axis % len(sizes))


def _norm_over_all_axes(form: NodeRewriter) -> None:
    """Lower an RMSNormalization over all axes, which TVM fails to convert."""
    sizes, axis = form.sizes(0), form.attribute("axis", -1)
    if sizes is not None and not axis % len(sizes):
        data, scale = form.node.input
        lower_contrib_operators.write_rms_norm(form, data, scale, range(len(sizes)))


_RULES: Mapping[str, Callable[[NodeRewriter], None]] = {
    "ArgMax": _make_axis_positive,
    "ArgMin": _make_axis_positive,
    "BatchNormalization": _require_inference_batch_norm,
    "Col2Im": lower_col2im,
    "Compress": _compress,
    "Concat": _drop_empty_parts,
    "ConvTranspose": _resolve_conv_transpose_padding,
    "DFT": dft_and_resize_to_matmul.replace_dft,
    "Dropout": _dropout,
    "EyeLike": _lower_eye_like,
    "GRU": rewrite_batch_first_rnn,
    "IsInf": _is_inf,
    "LSTM": rewrite_batch_first_rnn,
    "LpNormalization": _lower_lp_normalization,
    "Mod": _rewrite_mod,
    "NonMaxSuppression": _require_constant_nms_limits,
    "OneHot": _one_hot,
    "Pow": _power,
    "RMSNormalization": _norm_over_all_axes,
    "RNN": rewrite_batch_first_rnn,
    "ReduceMax": _boolean_extremum,
    "ReduceMin": _boolean_extremum,
    "Resize": _resize,
    "ReverseSequence": reverse_sequences,
    "RoiAlign": _require_average_roi_align,
    "Shape": _count_nonzero,
    "STFT": dft_and_resize_to_matmul.replace_stft,
    "Slice": _slice_by_attributes,
    "SpaceToDepth": space_to_depth,
    "TopK": _cast_topk_integers,
    "Upsample": upsample,
}
