"""Lower onnxruntime's MultiHeadAttention and Attention to standard ONNX operators."""

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from onnx import TensorProto

from graphc.onnx.lower_contrib_grouped_query_attention import END, LOWEST, attended, counted, scored, size
from graphc.onnx.node_rewriter import NodeRewriter

_HIDDEN = -10_000.0  # onnxruntime's default for `mask_filter_value`, added to hidden scores


def attention(form: NodeRewriter) -> None:
    """Lower MultiHeadAttention. Raises ValueError for unsupported inputs and masks."""
    _refuse_if(
        form,
        mask_at=4,
        unsupported={
            "queries, keys and values in one": not (form.given(1) and form.given(2)),
            "caches that are longer than what is in them": form.given(8) or form.given(9),
            "scores as a result": form.has(3),
        },
    )
    query, key, value = (
        _by_heads(form, name, at) for at, name in enumerate(_biased(form, form.node.input[:3]))
    )
    keys, values = (_append_to_past(form, each, at) for at, each in enumerate((key, value)))
    _attend(form, query, keys, values, mask_at=4)


def packed_attention(form: NodeRewriter) -> None:
    """Lower Attention. Raises ValueError for unsupported inputs, masks and rotations."""
    _refuse_if(
        form,
        mask_at=3,
        unsupported={
            "rotations": bool(form.attribute("do_rotary", 0)),
            "caches that are longer than what is in them": form.given(6),
        },
    )
    projected = form.write("MatMul", *form.node.input[:2])
    if form.given(2):
        projected = form.write("Add", projected, form.node.input[2])
    widths = form.attribute("qkv_hidden_sizes", None) or [(form.sizes(1) or (0,))[-1] // 3] * 3
    ends, last = (0, *accumulate(widths)), form.whole(2)
    parts = [form.write("Slice", projected, *map(form.whole, each), last) for each in pairwise(ends)]
    query, *added = (_cut(form, part) for part in parts)
    if form.given(4):
        past = (form.write("Gather", form.node.input[4], form.constant(np.int64(at))) for at in range(2))
        added = [form.write("Concat", before, each, axis=2) for before, each in zip(past, added, strict=True)]
    if form.has(1):
        both = [_wide(form, each, 0) for each in added]
        form.write("Concat", *both, axis=0, name=form.node.output[1])
    keys, values = added
    _attend(form, query, keys, values, mask_at=3)


def _attend(form: NodeRewriter, query: str, keys: str, values: str, mask_at: int) -> None:
    """Write the node's result. The sixth input of either operator is added to the scores."""
    scores = scored(form, query, keys)
    if form.given(5):
        scores = form.write("Add", scores, form.node.input[5])
    if form.given(mask_at):
        scores = form.write("Add", scores, _mask(form, keys, mask_at))
    if form.attribute("unidirectional", 0):
        scores = form.write("Add", scores, _causal(form, query, keys))
    attended(form, scores, values)


def _refuse_if(form: NodeRewriter, mask_at: int, unsupported: Mapping[str, bool]) -> None:
    data, mask = form.sizes(0), form.sizes(mask_at) if form.given(mask_at) else ()
    odd = mask is not None and (len(mask) > 3 or (len(mask) == 1 and mask != (data or ())[:1]))
    unsupported = {
        **unsupported,
        "inputs of unknown sizes": data is None or mask is None,
        "a mask that is none of lengths, of places, or of places for each row": odd,
    }
    if wrong := [what for what, has in unsupported.items() if has]:
        raise ValueError(f"its {form.node.op_type} has {wrong[0]}")


def _biased(form: NodeRewriter, names: Any) -> list[str]:
    """Write queries, keys and values, each with its part of the bias added."""
    if not form.given(3):
        return list(names)
    width = (form.sizes(0) or (0,))[-1]
    ends = (0, width, 2 * width, END)
    parts = [
        form.write("Slice", form.node.input[3], form.whole(low), form.whole(high))
        for low, high in pairwise(ends)
    ]
    return [form.write("Add", name, part) for name, part in zip(names, parts, strict=True)]


def _by_heads(form: NodeRewriter, name: str, at: int) -> str:
    """Write data as [batch, heads, rows, numbers]; keys and values may have this form."""
    return name if len(form.sizes(at) or ()) == 4 else _cut(form, name)


def _cut(form: NodeRewriter, data: str) -> str:
    cut = form.write("Reshape", data, form.whole(0, 0, form.attribute("num_heads", 0), -1))
    return form.write("Transpose", cut, perm=[0, 2, 1, 3])


def _append_to_past(form: NodeRewriter, new: str, at: int) -> str:
    """Write keys or values after those of the cache; name the result if it is an output."""
    name = form.node.output[1 + at] if form.has(1 + at) else ""
    if form.given(6 + at):
        return form.write("Concat", form.node.input[6 + at], new, axis=2, name=name)
    return form.write("Identity", new, name=name) if name else new


def _mask(form: NodeRewriter, keys: str, at: int) -> str:
    """Write what a mask adds to scores; the mask holds lengths, keys, or keys for each row."""
    mask, sizes = form.node.input[at], form.sizes(at) or ()
    if len(sizes) == 1:
        lengths = form.write("Cast", mask, to=TensorProto.INT64)
        places = counted(form, size(form, keys, 2))
        is_visible = form.write("Less", places, _wide(form, lengths, 1))
    else:
        is_visible = form.write("Cast", mask, to=TensorProto.BOOL)
    axes = (1,) if len(sizes) == 3 else (1, 2)
    hidden = form.number(form.attribute("mask_filter_value", _HIDDEN))
    return form.write("Where", _wide(form, is_visible, *axes), form.number(0.0), hidden)


def _causal(form: NodeRewriter, query: str, keys: str) -> str:
    """Write what hides later positions; the last row is at the position of the last key."""
    rows, count = size(form, query, 2), size(form, keys, 2)
    columns = counted(form, count)
    places = form.write("Add", counted(form, rows), form.write("Sub", count, rows))
    is_later = form.write("Greater", columns, _wide(form, places, 1))
    lowest = form.number(float(np.float32(LOWEST)))
    return form.write("Where", is_later, lowest, form.number(0.0))


def _wide(form: NodeRewriter, data: str, *axes: int) -> str:
    return form.write("Unsqueeze", data, form.whole(*axes))
