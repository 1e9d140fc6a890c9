"""Infer result sizes of onnxruntime's own operators, which ONNX does not infer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import NodeProto, TensorProto, TypeProto, helper

Sizes = tuple[int, ...]
Typed = tuple[int, Sizes]  # element type and sizes
Given = Sequence[Typed | None]


def infer_result_types(node: NodeProto, input_types: Given) -> dict[str, TypeProto]:
    """Return the types of a node's results by name, if its input types determine them."""
    rule = _RULES.get(node.op_type) if node.domain == "com.microsoft" else None
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    results = () if rule is None else rule(attributes, input_types)
    return {
        name: helper.make_tensor_type_proto(*typed)
        for name, typed in zip(node.output, results, strict=False)
        if name and typed
    }


def _matmul_nbits(attrs: Mapping[str, Any], inputs: Given) -> Given:
    if not inputs[0] or "N" not in attrs:
        return ()
    kind, sizes = inputs[0]
    return [(kind, (*sizes[:-1], attrs["N"]))]


def _gather(attrs: Mapping[str, Any], inputs: Given) -> Given:
    """Infer GatherBlockQuantized: rows of the decoded table, in the type of its scales."""
    table_type, index_type, scale_type = (*inputs, None, None, None)[:3]
    if not (table_type and index_type and scale_type):
        return ()
    (_, table), (_, places), (kind, scales) = table_type, index_type, scale_type
    blocks, axis = attrs.get("quantize_axis", 1) % len(table), attrs.get("gather_axis", 0) % len(table)
    sizes = list(scales)
    sizes[blocks] *= attrs.get("block_size", 128)
    return [(kind, (*sizes[:axis], *places, *sizes[axis + 1 :]))]


def _infer_like_first_input(_: Mapping[str, Any], inputs: Given) -> Given:
    """Give the first and the optional fourth result (a sum) the type of the first input."""
    return [inputs[0], None, None, inputs[0]]


def _attention(attrs: Mapping[str, Any], inputs: Given) -> Given:
    """Infer MultiHeadAttention: one row per query, and caches extended by the new rows."""
    heads, (query, keys, values) = int(attrs.get("num_heads", 0)), (*inputs, None, None, None)[:3]
    if not (query and keys and values and heads):
        return ()
    caches: list[Typed] = []  # [batch, heads, rows, numbers], with the rows of the past
    for (kind, sizes), past in zip((keys, values), (*inputs, *[None] * 8)[6:8], strict=True):
        if len(sizes) != 4:
            batch, rows, width = sizes
            sizes = (batch, heads, rows, width // heads)
        past_rows = past[1][2] if past else 0
        caches.append((kind, (*sizes[:2], sizes[2] + past_rows, sizes[3])))
    kind, sizes = query
    return [(kind, (*sizes[:2], heads * caches[1][1][-1])), *caches]


def _infer_packed_attention(attrs: Mapping[str, Any], inputs: Given) -> Given:
    """Infer Attention, with one input for queries, keys and values, and one joint cache."""
    data, weights, past = inputs[0], inputs[1], (*inputs, *[None] * 5)[4]
    if not (data and weights):
        return ()
    (kind, (*rows, _)), heads = data, int(attrs["num_heads"])
    query, *_, values = attrs.get("qkv_hidden_sizes") or [weights[1][-1] // 3] * 3
    past_rows = past[1][3] if past else 0
    cache = kind, (2, rows[0], heads, rows[1] + past_rows, query // heads)
    return [(kind, (*rows, values)), cache]


def _embedding(_: Mapping[str, Any], inputs: Given) -> Given:
    """Infer EmbedLayerNormalization: normed rows, counts of masks, rows before the norm."""
    places, table = inputs[0], inputs[2]
    if not (places and table):
        return ()
    rows = table[0], (*places[1], table[1][-1])
    return [rows, (TensorProto.INT32, places[1][:1]), rows]


_RULES: Mapping[str, Callable[[Mapping[str, Any], Given], Given]] = {
    "Attention": _infer_packed_attention,
    "BiasGelu": _infer_like_first_input,
    "EmbedLayerNormalization": _embedding,
    "FastGelu": _infer_like_first_input,
    "GatherBlockQuantized": _gather,
    "Gelu": _infer_like_first_input,
    "MatMulNBits": _matmul_nbits,
    "MultiHeadAttention": _attention,
    "QuickGelu": _infer_like_first_input,
    "SimplifiedLayerNormalization": _infer_like_first_input,
    "SkipLayerNormalization": _infer_like_first_input,
    "SkipSimplifiedLayerNormalization": _infer_like_first_input,
}
