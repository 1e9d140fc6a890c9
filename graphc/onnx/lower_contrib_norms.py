"""Lower onnxruntime's norms, most of which first add tensors, to standard ONNX operators."""

from collections.abc import Sequence

from onnx import TensorProto

from graphc.onnx.lower_contrib_grouped_query_attention import counted, size
from graphc.onnx.node_rewriter import NodeRewriter


def rms_norm(form: NodeRewriter) -> None:
    """Lower SimplifiedLayerNormalization. Raises ValueError for other axes and in training."""
    if form.attribute("axis", -1) not in (-1, (len(form.sizes(0) or ()) or 1) - 1):
        raise ValueError("its SimplifiedLayerNormalization is not over the last axis")
    if form.has(1):
        raise ValueError("its SimplifiedLayerNormalization gives what training needs")
    normalised(form, form.node.input[0], form.node.input[1])


def skip_rms_norm(form: NodeRewriter) -> None:
    """Lower SkipSimplifiedLayerNormalization, of a sum. Raises ValueError in training."""
    data, skip, scale, *bias = form.node.input
    if form.has(1) or form.has(2):
        raise ValueError("its SkipSimplifiedLayerNormalization gives what training needs")
    if bias and bias[0]:
        data = form.write("Add", data, bias[0])
    summed = form.write("Add", data, skip, name=form.node.output[3] if form.has(3) else "")
    normalised(form, summed, scale)


def skip_norm(form: NodeRewriter) -> None:
    """Lower SkipLayerNormalization, of a sum. Raises ValueError in training."""
    data, skip = form.node.input[:2]
    if form.has(1) or form.has(2):
        raise ValueError("its SkipLayerNormalization gives what training needs")
    if form.given(4):
        data = form.write("Add", data, form.node.input[4])
    summed = form.write("Add", data, skip, name=form.node.output[3] if form.has(3) else "")
    _norm(form, summed, scale_at=2)


def embedding(form: NodeRewriter) -> None:
    """Lower EmbedLayerNormalization: a layer norm of summed table rows, and mask counts."""
    ids, segments, words, places, segment_table = form.node.input[:5]
    rows = size(form, ids, 1)
    if form.given(8):
        position_rows = form.write("Gather", places, form.node.input[8])
    else:
        position_rows = form.write("Gather", places, counted(form, rows))
    summed = form.write("Add", form.write("Gather", words, ids), position_rows)
    if segments:
        summed = form.write("Add", summed, form.write("Gather", segment_table, segments))
    if form.has(2):
        form.write("Identity", summed, name=form.node.output[2])
    if form.has(1):
        mask = form.node.input[7] if form.given(7) else form.write("Sub", ids, ids)
        counts = form.write("Cast", mask, to=TensorProto.INT32)
        if form.opset < 13:
            form.write("ReduceSum", counts, axes=[1], keepdims=0, name=form.node.output[1])
        else:
            form.write("ReduceSum", counts, form.whole(1), keepdims=0, name=form.node.output[1])
    _norm(form, summed, scale_at=5)


def _norm(form: NodeRewriter, data: str, scale_at: int) -> None:
    """Write the node's result, the layer norm of `data` with scale and optional offset."""
    scale, has_offset = form.node.input[scale_at], form.given(scale_at + 1)
    centred = form.write("Sub", data, _mean(form, data))
    root = _root(form, _mean(form, form.write("Mul", centred, centred)), 1e-12, scale_at)
    rows, result = form.write("Div", centred, root), form.node.output[0]
    if has_offset:
        form.write("Add", form.write("Mul", rows, scale), form.node.input[scale_at + 1], name=result)
    else:
        form.write("Mul", rows, scale, name=result)


def normalised(form: NodeRewriter, data: str, scale: str, axes: Sequence[int] = (-1,)) -> None:
    """Write the node's result, the RMS norm of `data` along some axes, times a scale."""
    root = _root(form, _mean(form, form.write("Mul", data, data), axes), 1e-5)
    form.write("Mul", form.write("Div", data, root), scale, name=form.node.output[0])


def _mean(form: NodeRewriter, data: str, axes: Sequence[int] = (-1,)) -> str:
    if form.opset < 18:
        return form.write("ReduceMean", data, axes=list(axes), keepdims=1)
    return form.write("ReduceMean", data, form.whole(*axes), keepdims=1)


def _root(form: NodeRewriter, mean: str, epsilon: float, at: int = 0) -> str:
    """Write sqrt(mean + epsilon); epsilon has the type of input `at`."""
    least = form.number(form.attribute("epsilon", epsilon), at)
    return form.write("Sqrt", form.write("Add", mean, least))
