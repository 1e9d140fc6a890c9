"""GroupQueryAttention, onnxruntime's attention over caches that queries share, in ONNX's words."""

from itertools import pairwise

import numpy as np
from onnx import TensorProto

from graphc.onnx.node_rewriter import NodeRewriter

LOWEST = -3.4028234663852886e38  # of float32: hides a place, and no sum with it is not a number
END = 1 << 30  # behind every axis


def attention(form: NodeRewriter) -> None:
    """GroupQueryAttention: caches whose heads several queries share, and rotations by position."""
    heads, groups = form.attribute("num_heads", 0), form.attribute("kv_num_heads", 0)
    said = {
        "a bias of its scores": form.given(10),
        "a sink": form.given(11) or bool(form.attribute("smooth_softmax", 0)),
        "quantised caches": form.attribute("kv_cache_bit_width", 0) not in (0, 32),
        "scores as a result": bool(form.attribute("qk_output", 0)) or form.has(3),
        "no caches": not (form.given(3) and form.given(4) and form.has(1) and form.has(2)),
    }
    if wrong := [what for what, has in said.items() if has]:
        raise ValueError(f"its GroupQueryAttention has {wrong[0]}")
    query, key, value = _split(form, heads, groups)
    rows = size(form, form.node.input[0], 1)
    places = _places(form, rows)
    if form.attribute("do_rotary", 0):
        query, key = (_rotated(form, each, places) for each in (query, key))
    keys, values = (
        form.write("Concat", form.node.input[3 + at], each, axis=2, name=form.node.output[1 + at])
        for at, each in enumerate((key, value))
    )
    mask = _mask(form, keys, places)
    keys, values = (_for_each_query(form, each, heads, groups) for each in (keys, values))
    scores = scored(form, query, keys)
    softcap = form.attribute("softcap", 0.0)
    if softcap:
        most = form.number(softcap)
        scores = form.write("Mul", form.write("Tanh", form.write("Div", scores, most)), most)
    attended(form, form.write("Add", scores, mask), values)


def scored(form: NodeRewriter, query: str, keys: str) -> str:
    """How well every query fits every key."""
    turned = form.write("Transpose", keys, perm=[0, 1, 3, 2])
    return form.write("Mul", form.write("MatMul", query, turned), _scale(form, query))


def attended(form: NodeRewriter, scores: str, values: str) -> None:
    """The node's result: means of values by scores, all heads side by side."""
    weights = form.write("Softmax", scores, axis=-1)
    found = form.write("Transpose", form.write("MatMul", weights, values), perm=[0, 2, 1, 3])
    form.write("Reshape", found, form.whole(0, 0, -1), name=form.node.output[0])


def _split(form: NodeRewriter, heads: int, groups: int) -> list[str]:
    """Queries, keys and values: [batch, heads, rows, numbers], of one input or of three."""
    if form.given(1):
        counts = (heads, groups, groups)
        parts = [
            form.write("Reshape", name, form.whole(0, 0, count, -1))
            for name, count in zip(form.node.input[:3], counts, strict=True)
        ]
    else:
        whole = form.write("Reshape", form.node.input[0], form.whole(0, 0, heads + 2 * groups, -1))
        ends = (0, heads, heads + groups, heads + 2 * groups)
        parts = [
            form.write("Slice", whole, form.whole(low), form.whole(high), form.whole(2))
            for low, high in pairwise(ends)
        ]
    return [form.write("Transpose", part, perm=[0, 2, 1, 3]) for part in parts]


def _places(form: NodeRewriter, rows: str) -> str:
    """Where each row stands in its sequence, [batch, rows]: the last is where `seqlens_k` says."""
    ends = form.write("Cast", form.node.input[5], to=TensorProto.INT64)
    ends = form.write("Reshape", ends, form.whole(-1, 1))
    first = form.write("Sub", form.write("Add", ends, form.whole(1)), rows)
    first = form.write("Max", first, form.whole(0))  # a prompt with nothing behind its end
    return form.write("Add", first, counted(form, rows))


def _rotated(form: NodeRewriter, data: str, places: str) -> str:
    """The first numbers of each head as pairs, turned by the angles of their place."""
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
    turned = [
        form.write("Sub", form.write("Mul", one, cos), form.write("Mul", other, sin)),
        form.write("Add", form.write("Mul", one, sin), form.write("Mul", other, cos)),
    ]
    if form.attribute("rotary_interleaved", 0):
        turned = [form.write("Unsqueeze", each, form.whole(4)) for each in turned]
        both = form.write("Concat", *turned, axis=4)
        turned = [form.write("Reshape", both, form.whole(0, 0, 0, 2 * pairs))]
    rest = form.write("Slice", data, form.whole(2 * pairs), form.whole(END), last)
    return form.write("Concat", *turned, rest, axis=3)


def _mask(form: NodeRewriter, keys: str, places: str) -> str:
    """What is added to scores: nobody looks behind their own place, or further back than a window."""
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
    """A head of the cache as often as queries share it."""
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
    said = form.attribute("scale", 0.0)
    if said:
        return form.number(said)
    count = size(form, query, 3)
    root = form.write("Sqrt", form.write("Cast", count, to=form.kind(0) or TensorProto.FLOAT))
    return form.write("Reciprocal", root)


def size(form: NodeRewriter, name: str, axis: int) -> str:
    return form.write("Gather", form.write("Shape", name), form.constant(np.int64(axis)))


def counted(form: NodeRewriter, count: str) -> str:
    """0, 1 and so on."""
    return form.write("Range", form.constant(np.int64(0)), count, form.constant(np.int64(1)))
