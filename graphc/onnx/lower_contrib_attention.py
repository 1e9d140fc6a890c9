"""Lower onnxruntime's attention operators to standard ONNX operators."""

from collections.abc import Mapping
from itertools import accumulate, pairwise

import numpy as np
from onnx import TensorProto

from mallorn.graphc.onnx.node_rewriter import NodeRewriter

LOWEST = -3.4028234663852886e38  # lowest float32: masks a score without making sums NaN
END = 1 << 30  # beyond the end of every axis


def grouped_query_attention(form: NodeRewriter) -> None:
    """Lower GroupQueryAttention. Raises ValueError for forms such as attention sinks."""
    heads, groups = form.attribute("num_heads", 0), form.attribute("kv_num_heads", 0)
    unsupported = {
        "a bias of the scores": form.has_input(10),
        "an attention sink": form.has_input(11) or bool(form.attribute("smooth_softmax", 0)),
        "quantised caches": form.attribute("kv_cache_bit_width", 0) not in (0, 32),
        "the scores as an output": bool(form.attribute("qk_output", 0)) or form.has_output(3),
        "no caches": not (
            form.has_input(3) and form.has_input(4) and form.has_output(1) and form.has_output(2)
        ),
    }
    if features := [feature for feature, is_used in unsupported.items() if is_used]:
        raise ValueError(f"the GroupQueryAttention has {features[0]}")

    # Queries, keys and values as [batch, heads, rows, numbers], from 1 or 3 inputs.
    if form.has_input(1):
        counts = (heads, groups, groups)
        parts = [
            form.write("Reshape", name, form.integers(0, 0, count, -1))
            for name, count in zip(form.node.input[:3], counts, strict=True)
        ]
    else:
        heads_in_one = form.write("Reshape", form.node.input[0], form.integers(0, 0, heads + 2 * groups, -1))
        ends = (0, heads, heads + groups, heads + 2 * groups)
        parts = [
            form.write("Slice", heads_in_one, form.integers(low), form.integers(high), form.integers(2))
            for low, high in pairwise(ends)
        ]
    query, key, value = (form.write("Transpose", part, perm=[0, 2, 1, 3]) for part in parts)

    # Each row's position, [batch, rows]; the sixth input gives the last row's.
    rows = form.append_size(form.node.input[0], 1)
    last_positions = form.write("Cast", form.node.input[5], to=TensorProto.INT64)
    last_positions = form.write("Reshape", last_positions, form.integers(-1, 1))
    first = form.write("Sub", form.write("Add", last_positions, form.integers(1)), rows)
    first = form.write("Max", first, form.integers(0))  # a padded prompt may be shorter than its rows
    positions = form.write("Add", first, form.append_range(rows))

    if form.attribute("do_rotary", 0):
        query, key = (_rotate(form, data, positions) for data in (query, key))
    keys, values = (
        form.write("Concat", form.node.input[3 + index], part, axis=2, name=form.node.output[1 + index])
        for index, part in enumerate((key, value))
    )
    # The mask hides later positions and those before the window.
    key_places = form.append_range(form.append_size(keys, 2))
    query_places = form.write("Unsqueeze", positions, form.integers(1, 3))
    is_hidden = form.write("Greater", key_places, query_places)
    window = form.attribute("local_window_size", -1)
    if window > 0:
        far = form.write("LessOrEqual", key_places, form.write("Sub", query_places, form.integers(window)))
        is_hidden = form.write("Or", is_hidden, far)
    mask = form.write("Where", is_hidden, form.number(LOWEST), form.number(0.0))
    if heads != groups:
        keys, values = (_repeat_heads(form, cache, heads, groups) for cache in (keys, values))
    scores = _write_scores(form, query, keys)
    softcap = form.attribute("softcap", 0.0)
    if softcap:
        limit = form.number(softcap)
        scores = form.write("Mul", form.write("Tanh", form.write("Div", scores, limit)), limit)
    _write_result(form, form.write("Add", scores, mask), values)


def _write_scores(form: NodeRewriter, query: str, keys: str) -> str:
    transposed_keys = form.write("Transpose", keys, perm=[0, 1, 3, 2])
    products, scale = form.write("MatMul", query, transposed_keys), form.attribute("scale", 0.0)
    if scale:
        return form.write("Mul", products, form.number(scale))
    numbers = form.append_size(query, 3)
    root = form.write("Sqrt", form.write("Cast", numbers, to=form.input_element_type(0) or TensorProto.FLOAT))
    return form.write("Mul", products, form.write("Reciprocal", root))


def _repeat_heads(form: NodeRewriter, cache: str, heads: int, groups: int) -> str:
    expanded = form.write("Unsqueeze", cache, form.integers(2))
    expanded = form.write("Expand", expanded, form.integers(1, 1, heads // groups, 1, 1))
    sizes = form.write("Shape", cache)
    shape = form.write(
        "Concat",
        form.write("Slice", sizes, form.integers(0), form.integers(1)),
        form.integers(heads),
        form.write("Slice", sizes, form.integers(2), form.integers(4)),
        axis=0,
    )
    return form.write("Reshape", expanded, shape)


def _write_result(form: NodeRewriter, scores: str, values: str) -> None:
    weights = form.write("Softmax", scores, axis=-1)
    result = form.write("Transpose", form.write("MatMul", weights, values), perm=[0, 2, 1, 3])
    form.write("Reshape", result, form.integers(0, 0, -1), name=form.node.output[0])


def _rotate(form: NodeRewriter, data: str, positions: str) -> str:
    """Append a rotary embedding: nodes that rotate pairs in each head by their position."""
    angles, (cos, sin) = form.sizes(7), form.node.input[7:9]
    if angles is None:
        raise ValueError("the angles of the GroupQueryAttention are not constant")
    positions = form.node.input[9] if form.has_input(9) else positions
    cos, sin = (
        form.write("Unsqueeze", form.write("Gather", table, positions), form.integers(1))
        for table in (cos, sin)
    )
    pairs, last = angles[1], form.integers(3)
    if form.attribute("rotary_interleaved", 0):
        begins, steps = ((0, 2 * pairs), (1, 2 * pairs)), 2
        first, second = (
            form.write("Slice", data, form.integers(low), form.integers(high), last, form.integers(steps))
            for low, high in begins
        )
    else:
        first, second = (
            form.write("Slice", data, form.integers(low), form.integers(high), last)
            for low, high in ((0, pairs), (pairs, 2 * pairs))
        )
    rotated_pairs = [
        form.write("Sub", form.write("Mul", first, cos), form.write("Mul", second, sin)),
        form.write("Add", form.write("Mul", first, sin), form.write("Mul", second, cos)),
    ]
    if form.attribute("rotary_interleaved", 0):
        rotated_pairs = [form.write("Unsqueeze", pair, form.integers(4)) for pair in rotated_pairs]
        interleaved = form.write("Concat", *rotated_pairs, axis=4)
        rotated_pairs = [form.write("Reshape", interleaved, form.integers(0, 0, 0, 2 * pairs))]
    remainder = form.write("Slice", data, form.integers(2 * pairs), form.integers(END), last)
    return form.write("Concat", *rotated_pairs, remainder, axis=3)


_HIDDEN = -10_000.0  # onnxruntime's default for `mask_filter_value`, added to hidden scores


def multihead_attention(form: NodeRewriter) -> None:
    """Lower MultiHeadAttention. Raises ValueError for unsupported inputs and masks."""
    _refuse_if(
        form,
        mask_at=4,
        unsupported={
            "queries, keys and values in one tensor": not (form.has_input(1) and form.has_input(2)),
            "caches that are longer than their content": form.has_input(8) or form.has_input(9),
            "the scores as an output": form.has_output(3),
        },
    )
    parts = list(form.node.input[:3])
    if form.has_input(3):  # a bias for queries, keys and values in one
        width = (form.sizes(0) or (0,))[-1]
        biases = [
            form.write("Slice", form.node.input[3], form.integers(low), form.integers(high))
            for low, high in pairwise((0, width, 2 * width, END))
        ]
        parts = [form.write("Add", name, bias) for name, bias in zip(parts, biases, strict=True)]
    # Keys and values may already be [batch, heads, rows, numbers].
    query, *new_rows = (
        name if len(form.sizes(index) or ()) == 4 else _split_heads(form, name)
        for index, name in enumerate(parts)
    )
    caches = []  # keys and values after those of the past
    for index, rows in enumerate(new_rows):
        name = form.node.output[1 + index] if form.has_output(1 + index) else ""
        if form.has_input(6 + index):
            rows = form.write("Concat", form.node.input[6 + index], rows, axis=2, name=name)
        elif name:
            rows = form.write("Identity", rows, name=name)
        caches.append(rows)
    keys, values = caches
    _attend(form, query, keys, values, mask_at=4)


def packed_attention(form: NodeRewriter) -> None:
    """Lower Attention. Raises ValueError for unsupported inputs, masks and rotations."""
    _refuse_if(
        form,
        mask_at=3,
        unsupported={
            "rotations": bool(form.attribute("do_rotary", 0)),
            "caches that are longer than their content": form.has_input(6),
        },
    )
    projected = form.write("MatMul", *form.node.input[:2])
    if form.has_input(2):
        projected = form.write("Add", projected, form.node.input[2])
    widths = form.attribute("qkv_hidden_sizes", None) or [(form.sizes(1) or (0,))[-1] // 3] * 3
    ends, last = (0, *accumulate(widths)), form.integers(2)
    parts = [
        form.write("Slice", projected, form.integers(low), form.integers(high), last)
        for low, high in pairwise(ends)
    ]
    query, keys, values = (_split_heads(form, part) for part in parts)
    if form.has_input(4):
        past_keys = form.write("Gather", form.node.input[4], form.constant(np.int64(0)))
        keys = form.write("Concat", past_keys, keys, axis=2)
        past_values = form.write("Gather", form.node.input[4], form.constant(np.int64(1)))
        values = form.write("Concat", past_values, values, axis=2)
    if form.has_output(1):
        caches = [form.write("Unsqueeze", cache, form.integers(0)) for cache in (keys, values)]
        form.write("Concat", *caches, axis=0, name=form.node.output[1])
    _attend(form, query, keys, values, mask_at=3)


def _attend(form: NodeRewriter, query: str, keys: str, values: str, mask_at: int) -> None:
    """Append attention's own nodes; input 5 of the node, if present, is added to scores."""
    scores = _write_scores(form, query, keys)
    if form.has_input(5):
        scores = form.write("Add", scores, form.node.input[5])
    if form.has_input(mask_at):
        # The mask is given as lengths, or as which keys count.
        mask, sizes = form.node.input[mask_at], form.sizes(mask_at) or ()
        if len(sizes) == 1:
            lengths = form.write("Cast", mask, to=TensorProto.INT64)
            places = form.append_range(form.append_size(keys, 2))
            is_visible = form.write("Less", places, form.write("Unsqueeze", lengths, form.integers(1)))
        else:
            is_visible = form.write("Cast", mask, to=TensorProto.BOOL)
        axes = (1,) if len(sizes) == 3 else (1, 2)
        hidden_score = form.number(form.attribute("mask_filter_value", _HIDDEN))
        is_visible = form.write("Unsqueeze", is_visible, form.integers(*axes))
        scores = form.write("Add", scores, form.write("Where", is_visible, form.number(0.0), hidden_score))
    if form.attribute("unidirectional", 0):
        # Hide later positions; the last row is at the position of the last key.
        rows, count = form.append_size(query, 2), form.append_size(keys, 2)
        columns = form.append_range(count)
        positions = form.write("Add", form.append_range(rows), form.write("Sub", count, rows))
        is_later = form.write("Greater", columns, form.write("Unsqueeze", positions, form.integers(1)))
        lowest = form.number(float(np.float32(LOWEST)))
        scores = form.write("Add", scores, form.write("Where", is_later, lowest, form.number(0.0)))
    _write_result(form, scores, values)


def _refuse_if(form: NodeRewriter, mask_at: int, unsupported: Mapping[str, bool]) -> None:
    data, mask = form.sizes(0), form.sizes(mask_at) if form.has_input(mask_at) else ()
    is_odd = mask is not None and (len(mask) > 3 or (len(mask) == 1 and mask != (data or ())[:1]))
    unsupported = {
        **unsupported,
        "inputs of unknown sizes": data is None or mask is None,
        "a mask that is not of lengths, of positions, or of positions for each row": is_odd,
    }
    if features := [feature for feature, is_used in unsupported.items() if is_used]:
        raise ValueError(f"the {form.node.op_type} has {features[0]}")


def _split_heads(form: NodeRewriter, data: str) -> str:
    heads = form.write("Reshape", data, form.integers(0, 0, form.attribute("num_heads", 0), -1))
    return form.write("Transpose", heads, perm=[0, 2, 1, 3])
