"""Lower onnxruntime's own operators, which optimisers and LLM tools write, to ONNX's."""

from collections.abc import Callable, Mapping, Sequence
from math import sqrt

import numpy as np
from onnx import TensorProto

from mallorn.graphc.onnx import lower_contrib_attention
from mallorn.graphc.onnx.node_rewriter import NodeRewriter


def rms_norm(form: NodeRewriter) -> None:
    """Lower an RMS norm of the last axis. Raises ValueError for other axes or training."""
    if form.attribute("axis", -1) not in (-1, (len(form.sizes(0) or ()) or 1) - 1):
        raise ValueError("the SimplifiedLayerNormalization is not over the last axis")
    if form.has_output(1):
        raise ValueError("SimplifiedLayerNormalization has outputs for training")
    write_rms_norm(form, form.node.input[0], form.node.input[1])


def skip_rms_norm(form: NodeRewriter) -> None:
    write_rms_norm(form, _add_skip(form, bias_at=3), form.node.input[2])


def skip_norm(form: NodeRewriter) -> None:
    _norm(form, _add_skip(form, bias_at=4), scale_at=2)


def _add_skip(form: NodeRewriter, bias_at: int) -> str:
    """Append the sum that is normed. Raises ValueError if the node has training outputs."""
    if form.has_output(1) or form.has_output(2):
        raise ValueError(f"{form.node.op_type} has outputs for training")
    total = form.node.output[3] if form.has_output(3) else ""
    return form.write("Add", _add_bias(form, bias_at), form.node.input[1], name=total)


def _add_bias(form: NodeRewriter, bias_at: int = 1) -> str:
    data = form.node.input[0]
    return form.write("Add", data, form.node.input[bias_at]) if form.has_input(bias_at) else data


def lower_embed_layer_norm(form: NodeRewriter) -> None:
    """Lower EmbedLayerNormalization: a layer norm of summed table rows, and mask counts."""
    ids, segments, words, places, segment_table = form.node.input[:5]
    rows = form.append_size(ids, 1)
    positions = form.node.input[8] if form.has_input(8) else form.append_range(rows)
    position_rows = form.write("Gather", places, positions)
    total = form.write("Add", form.write("Gather", words, ids), position_rows)
    if segments:
        total = form.write("Add", total, form.write("Gather", segment_table, segments))
    if form.has_output(2):
        form.write("Identity", total, name=form.node.output[2])
    if form.has_output(1):
        mask = form.node.input[7] if form.has_input(7) else form.write("Sub", ids, ids)
        counts = form.write("Cast", mask, to=TensorProto.INT32)
        form.write_along("ReduceSum", counts, 1, keepdims=0, name=form.node.output[1])
    _norm(form, total, scale_at=5)


def _norm(form: NodeRewriter, data: str, scale_at: int) -> None:
    """Append a layer norm of `data`; scale and offset are inputs `scale_at` and next."""
    scale, has_offset = form.node.input[scale_at], form.has_input(scale_at + 1)
    centred = form.write("Sub", data, _mean(form, data))
    root = _append_square_root(form, _mean(form, form.write("Mul", centred, centred)), 1e-12, scale_at)
    rows, result = form.write("Div", centred, root), form.node.output[0]
    scaled = form.write("Mul", rows, scale, name="" if has_offset else result)
    if has_offset:
        form.write("Add", scaled, form.node.input[scale_at + 1], name=result)


def write_rms_norm(form: NodeRewriter, data: str, scale: str, axes: Sequence[int] = (-1,)) -> None:
    """Append nodes that compute the node's result, the RMS norm of `data` times a scale."""
    root = _append_square_root(form, _mean(form, form.write("Mul", data, data), axes), 1e-5)
    form.write("Mul", form.write("Div", data, root), scale, name=form.node.output[0])


def _mean(form: NodeRewriter, data: str, axes: Sequence[int] = (-1,)) -> str:
    if form.opset < 18:
        return form.write("ReduceMean", data, axes=list(axes), keepdims=1)
    return form.write("ReduceMean", data, form.integers(*axes), keepdims=1)


def _append_square_root(form: NodeRewriter, mean: str, epsilon: float, index: int = 0) -> str:
    """Append nodes for sqrt(mean + epsilon); epsilon has the type of input `index`."""
    least = form.number(form.attribute("epsilon", epsilon), index)
    return form.write("Sqrt", form.write("Add", mean, least))


def _lower_quantized_lstm(form: NodeRewriter) -> None:
    """Lower DynamicQuantizeLSTM to an LSTM of float32 weights, which rounds less: its inputs
    and states are not quantised. Raises ValueError unless weights and scales are constant."""
    inputs = list(form.node.input)
    for index, place in ((1, 8), (2, 10)):  # weights, and scale and zero point of each
        numbers, scale, zero = (form.value(at) for at in (index, place, place + 1))
        if numbers is None or scale is None or (zero is None and form.has_input(place + 1)):
            raise ValueError("the DynamicQuantizeLSTM needs constant weights and scales")
        steps = numbers.astype("float32")
        # One scale per direction, or per direction and gate's unit.
        rest = (len(numbers), 1, -1)
        if zero is not None:
            steps -= zero.astype("float32").reshape(rest)
        weights = steps * scale.reshape(rest)
        inputs[index] = form.constant(np.ascontiguousarray(weights.transpose(0, 2, 1)))
    form.copy(inputs[:8])
    form.nodes[-1].op_type, form.nodes[-1].domain = "LSTM", ""


def _unfuse_activation(form: NodeRewriter) -> None:
    """Lower FusedConv or FusedGemm to the product, a sum with a fourth input, and an activation.
    Raises ValueError for an unknown activation."""
    kind, name = form.attribute("activation", b"").decode(), form.node.output[0]
    numbers = form.attribute("activation_params", ())
    if form.node.op_type == "FusedGemm":
        numbers = [form.attribute(f"activation_{part}", 0.0) for part in ("alpha", "beta")]
    form.copy(form.node.input[:3], [f"{name}/product"])
    product = form.nodes[-1]
    product.op_type, product.domain = form.node.op_type.removeprefix("Fused"), ""
    kept = [attribute for attribute in product.attribute if not attribute.name.startswith("activation")]
    del product.attribute[:]
    product.attribute.extend(kept)
    total = product.output[0]
    if form.has_input(3):
        total = form.write("Add", total, form.node.input[3])
    if kind == "Clip":
        lifted = form.write("Max", total, form.number(numbers[0]))
        form.write("Min", lifted, form.number(numbers[1]), name=name)
    elif kind in _ACTIVATIONS:
        form.write(kind, total, name=name, **dict(zip(_ACTIVATIONS[kind], map(float, numbers), strict=False)))
    else:
        raise ValueError(f"the {form.node.op_type} has the activation {kind or 'None'}")


# Attributes of each activation, in the order of its fused numbers.
_ACTIVATIONS: Mapping[str, Sequence[str]] = {
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}
DOMAIN = "com.microsoft"
HOMELESS = frozenset(("SimplifiedLayerNormalization",))  # written under ONNX's own domain


def _gelu(form: NodeRewriter) -> None:
    data = _add_bias(form)
    _gate(form, data, form.write("Erf", form.write("Mul", data, form.number(sqrt(0.5)))))


def _fast_gelu(form: NodeRewriter) -> None:
    data = _add_bias(form)
    cube = form.write("Mul", form.write("Mul", data, data), data)
    inner = form.write("Add", data, form.write("Mul", cube, form.number(0.044715)))
    _gate(form, data, form.write("Tanh", form.write("Mul", inner, form.number(sqrt(2 / np.pi)))))


def _gate(form: NodeRewriter, data: str, curve: str) -> None:
    half = form.write("Mul", data, form.number(0.5))
    form.write("Mul", half, form.write("Add", curve, form.number(1.0)), name=form.node.output[0])


def _quick_gelu(form: NodeRewriter) -> None:
    (data,) = form.node.input
    gate = form.write("Sigmoid", form.write("Mul", data, form.number(form.attribute("alpha", 1.702))))
    form.write("Mul", data, gate, name=form.node.output[0])


def _lower_fused_matmul(form: NodeRewriter) -> None:
    """Lower FusedMatMul. Raises ValueError if it transposes batches or unknown shapes."""
    if form.attribute("transBatchA", 0) or form.attribute("transBatchB", 0):
        raise ValueError("the FusedMatMul transposes batch axes (transBatchA, B)")
    factors = []
    for index, name in enumerate(form.node.input):
        sizes = form.sizes(index)
        if form.attribute(f"trans{'AB'[index]}", 0):
            if sizes is None:
                raise ValueError("the sizes of the FusedMatMul are not known")
            axes = list(range(len(sizes)))
            name = form.write("Transpose", name, perm=[*axes[:-2], axes[-1], axes[-2]])
        factors.append(name)
    alpha = form.attribute("alpha", 1.0)
    if alpha != 1.0:
        factors[0] = form.write("Mul", factors[0], form.number(alpha))
    form.write("MatMul", *factors, name=form.node.output[0])


RULES: Mapping[str, Callable[[NodeRewriter], None]] = {
    "Attention": lower_contrib_attention.packed_attention,
    "BiasGelu": _gelu,
    "EmbedLayerNormalization": lower_embed_layer_norm,
    "FastGelu": _fast_gelu,
    "FusedConv": _unfuse_activation,
    "FusedGemm": _unfuse_activation,
    "FusedMatMul": _lower_fused_matmul,
    "Gelu": _gelu,
    "GroupQueryAttention": lower_contrib_attention.grouped_query_attention,
    "MultiHeadAttention": lower_contrib_attention.multihead_attention,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": rms_norm,
    "SkipLayerNormalization": skip_norm,
    "SkipSimplifiedLayerNormalization": skip_rms_norm,
}
#: Operators that round their inputs when they run, in forms that do not, for comparisons.
UNROUNDED: Mapping[str, Callable[[NodeRewriter], None]] = {"DynamicQuantizeLSTM": _lower_quantized_lstm}
