"""Lower onnxruntime's attention operators to standard ONNX operators."""

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from onnx import TensorProto

from graphc.onnx.node_rewriter import NodeRewriter

LOWEST = -3.4028234663852886e38  # lowest float32: masks a score without making sums NaN
END = 1 << 30  # beyond the end of every axis


def grouped_query_attention(form: NodeRewriter) -> None:
    """Lower GroupQueryAttention. Raises ValueError for unsupported forms, such as sinks."""
    heads, groups = form.attribute("num_heads", 0), form.attribute("kv_num_heads", 0)
    unsupported = {
        "a bias of its scores": form.given(10),
        "a sink": form.given(11) or bool(form.attribute("smooth_softmax", 0)),
        "quantised caches": form.attribute("kv_cache_bit_width", 0) not in (0, 32),
        "scores as a result": bool(form.attribute("qk_output", 0)) or form.has(3),
        "no caches": not (form.given(3) and form.given(4) and form.has(1) and form.has(2)),
    }
    if wrong := [what for what, has in unsupported.items() if has]:
        raise ValueError(f"its GroupQueryAttention has {wrong[0]}")
    query, key, value = _split(form, heads, groups)
    rows = size(form, form.node.input[0], 1)
    places = _positions(form, rows)
    if form.attribute("do_rotary", 0):
        query, key = (_rotated(form, each, places) for each in (query, key))
    keys, values = (
        form.write("Concat", form.node.input[3 + at], each, axis=2, name=form.node.output[1 + at])
        for at, each in enumerate((key, value))
    )
    mask = _mask_later_positions(form, keys, places)
    keys, values = (_for_each_query(form, each, heads, groups) for each in (keys, values))
    scores = scored(form, query, keys)
    softcap = form.attribute("softcap", 0.0)
    if softcap:
        most = form.number(softcap)
        scores = form.write("Mul", form.write("Tanh", form.write("Div", scores, most)), most)
    attended(form, form.write("Add", scores, mask), values)


def scored(form: NodeRewriter, query: str, keys: str) -> str:
    """Write the scaled dot products of queries and keys."""
    transposed_keys = form.write("Transpose", keys, perm=[0, 1, 3, 2])
    return form.write("Mul", form.write("MatMul", query, transposed_keys), _scale(form, query))


def attended(form: NodeRewriter, scores: str, values: str) -> None:
    """Write the node's result: values weighted by softmax of the scores, heads joined."""
    weights = form.write("Softmax", scores, axis=-1)
    result = form.write("Transpose", form.write("MatMul", weights, values), perm=[0, 2, 1, 3])
    form.write("Reshape", result, form.whole(0, 0, -1), name=form.node.output[0])


def _split(form: NodeRewriter, heads: int, groups: int) -> list[str]:
    """Write queries, keys and values as [batch, heads, rows, numbers], from 1 or 3 inputs."""
    if form.given(1):
        counts = (heads, groups, groups)
        parts = [
            form.write("Reshape", name, form.whole(0, 0, count, -1))
            for name, count in zip(form.node.input[:3], counts, strict=True)
        ]
    else:
        packed = form.write("Reshape", form.node.input[0], form.whole(0, 0, heads + 2 * groups, -1))
        ends = (0, heads, heads + groups, heads + 2 * groups)
        parts = [
            form.write("Slice", packed, form.whole(low), form.whole(high), form.whole(2))
            for low, high in pairwise(ends)
        ]
    return [form.write("Transpose", part, perm=[0, 2, 1, 3]) for part in parts]


def _positions(form: NodeRewriter, rows: str) -> str:
    """Write each row's position, [batch, rows]; `seqlens_k` gives the last row's."""
    ends = form.write("Cast", form.node.input[5], to=TensorProto.INT64)
    ends = form.write("Reshape", ends, form.whole(-1, 1))
    first = form.write("Sub", form.write("Add", ends, form.whole(1)), rows)
    first = form.write("Max", first, form.whole(0))  # a padded prompt may be shorter than its rows
    return form.write("Add", first, counted(form, rows))


def _rotated(form: NodeRewriter, data: str, places: str) -> str:
    """Write the rotary embedding: rotate pairs of each head's first numbers by position."""
    angles, (cos, sin) = form.sizes(7), form.node.input[7:9]
    if angles is None:
        raise ValueError("the angles of its GroupQueryAttention are not constant")
    places = form.node.input[9] if form.given(9) else places
    cos, sin = (
        form.write("Unsqueeze", form.write("Gather", table, places), form.whole(1)) for table in (cos, sin)
    )
    pairs, last = angles[1], form.whole(3)
    if form.attribute("rotary_interleaved", 0):
        begins, steps = ((0, 2 * pairs), (1, 2 * pairs)), 2
        one, other = (
            form.write("Slice", data, form.whole(low), form.whole(high), last, form.whole(steps))
            for low, high in begins
        )
    else:
        one, other = (
            form.write("Slice", data, form.whole(low), form.whole(high), last)
            for low, high in ((0, pairs), (pairs, 2 * pairs))
        )
    rotated_pairs = [
        form.write("Sub", form.write("Mul", one, cos), form.write("Mul", other, sin)),
        form.write("Add", form.write("Mul", one, sin), form.write("Mul", other, cos)),
    ]
    if form.attribute("rotary_interleaved", 0):
        rotated_pairs = [form.write("Unsqueeze", each, form.whole(4)) for each in rotated_pairs]
        both = form.write("Concat", *rotated_pairs, axis=4)
        rotated_pairs = [form.write("Reshape", both, form.whole(0, 0, 0, 2 * pairs))]
    rest = form.write("Slice", data, form.whole(2 * pairs), form.whole(END), last)
    return form.write("Concat", *rotated_pairs, rest, axis=3)


def _mask_later_positions(form: NodeRewriter, keys: str, places: str) -> str:
    """Write what is added to scores: it hides later positions, and those before the window."""
    count = size(form, keys, 2)
    columns = counted(form, count)
    rows = form.write("Unsqueeze", places, form.whole(1, 3))
    hidden = form.write("Greater", columns, rows)
    window = form.attribute("local_window_size", -1)
    if window > 0:
        far = form.write("LessOrEqual", columns, form.write("Sub", rows, form.whole(window)))
        hidden = form.write("Or", hidden, far)
    return form.write("Where", hidden, form.number(LOWEST), form.number(0.0))


def _for_each_query(form: NodeRewriter, data: str, heads: int, groups: int) -> str:
    """Write the cache with each head repeated for the query heads that share it."""
    if heads == groups:
        return data
    wide = form.write("Unsqueeze", data, form.whole(2))
    again = form.write("Expand", wide, form.whole(1, 1, heads // groups, 1, 1))
    numbers = form.write("Shape", data)
    shape = form.write(
        "Concat",
        form.write("Slice", numbers, form.whole(0), form.whole(1)),
        form.whole(heads),
        form.write("Slice", numbers, form.whole(2), form.whole(4)),
        axis=0,
    )
    return form.write("Reshape", again, shape)


def _scale(form: NodeRewriter, query: str) -> str:
    scale = form.attribute("scale", 0.0)
    if scale:
        return form.number(scale)
    count = size(form, query, 3)
    root = form.write("Sqrt", form.write("Cast", count, to=form.kind(0) or TensorProto.FLOAT))
    return form.write("Reciprocal", root)


def size(form: NodeRewriter, name: str, axis: int) -> str:
    return form.write("Gather", form.write("Shape", name), form.constant(np.int64(axis)))


def counted(form: NodeRewriter, count: str) -> str:
    """Write the numbers 0, 1, ..., count - 1."""
    return form.write("Range", form.constant(np.int64(0)), count, form.constant(np.int64(1)))


_HIDDEN = -10_000.0  # onnxruntime's default for `mask_filter_value`, added to hidden scores


def multihead_attention(form: NodeRewriter) -> None:
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
