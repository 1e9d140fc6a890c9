"""Rewrites operators between dequantize and quantize so that they compute on, move or join the bytes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
from tvm import relax

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Build, Pass
from graphc.core.graph_rewriting import permutation
from graphc.core.reporting_pass import Leave
from graphc.quant.int8_instructions import needed_instruction
from graphc.quant.integer_products import multiply
from graphc.quant.quantized_value import LIMITS, QuantizedValue, quantized_value
from graphc.quant.unsigned_bytes import decode, encode, signed, unsigned

# Operators whose results are numbers that they were given.
MOVES = frozenset(
    f"relax.{name}"
    for name in (
        "reshape",
        "permute_dims",
        "strided_slice",
        "squeeze",
        "expand_dims",
        "flatten",
        "broadcast_to",
        "take",
        "nn.max_pool1d",
        "nn.max_pool2d",
        "nn.max_pool3d",
    )
)


def move(call: Any, g: Graph) -> Build:
    """A move of bytes, and what it moved decoded behind it."""
    value = call.args[0]
    bytes_ = unsigned(value, g)
    if bytes_ is not None:
        return lambda: signed(_with(call, bytes_))
    stored = quantized_value(value, g)
    if stored is None:
        raise Leave
    if stored.constant:
        return _transpose_weights(call, stored)
    if not stored.same:
        raise Leave("its numbers have more than one scale")
    return lambda: QuantizedValue(_with(call, stored.data), stored.scale, stored.zero, 0).decode()


def limit(call: Any, g: Graph) -> Build:
    """A limit of the bytes, which have the same steps as before."""
    stored = quantized_value(call.args[0], g)
    if stored is None:
        raise Leave
    if stored.constant or not stored.same or stored.dtype not in LIMITS:
        raise Leave("it limits no bytes of one scale")
    return partial(_limited, stored)


def join(call: Any, g: Graph) -> Build:
    """Bytes that are joined before they are decoded."""
    parts = call.args[0]
    stored = [quantized_value(part, g) for part in getattr(parts, "fields", ())]
    decoded = [each for each in stored if each is not None]
    if not decoded:
        raise Leave
    if len(decoded) < len(stored) or not all(map(decoded[0].like, decoded)):
        raise Leave("its parts have different scales, or are no bytes")

    def build() -> Any:
        joined = relax.op.concat([each.data for each in decoded], axis=call.attrs.axis)
        return QuantizedValue(joined, decoded[0].scale, decoded[0].zero, 0).decode()

    return build


def _with(call: Any, data: Any) -> Any:
    """The same of other data."""
    return relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args)


def _limited(stored: QuantizedValue) -> Any:
    data = stored.data
    if stored.zero > LIMITS[stored.dtype][0]:
        data = relax.op.maximum(data, relax.const(stored.zero.astype(stored.dtype)))
    return QuantizedValue(data, stored.scale, stored.zero, 0).decode()


def _transpose_weights(call: Any, stored: QuantizedValue) -> Build:
    """Weights, transposed at once."""
    if call.op.name != "relax.permute_dims":
        raise Leave("it moves constants")
    axes = permutation(call)

    def build() -> Any:
        data = relax.const(np.ascontiguousarray(stored.data.value.numpy().transpose(axes)))
        axis = axes.index(stored.axis % len(axes))
        return QuantizedValue(data, stored.scale, stored.zero, axis).decode()

    return build


_RULES: Final[Mapping[str, Callable[[Any, Graph], Build]]] = {
    "relax.quantize": encode,
    "relax.dequantize": decode,
    "relax.nn.conv2d": multiply,
    "relax.matmul": multiply,
    "relax.concat": join,
    "relax.nn.relu": limit,
    **dict.fromkeys(MOVES, move),
}


class ComputeInIntegers(Pass[Build]):
    """Multiplies, moves, limits and joins the bytes themselves, between decoding and encoding."""

    name, match = "quant.compute_in_integers", tuple(_RULES)
    dtype, any_size, forward = "", True, True

    def check(self, call: Any, g: Graph) -> Build:
        build = _RULES[operator_name(call)](call, g)
        needed_instruction()
        return build

    def rewrite(self, call: Any, facts: Build, g: Graph) -> Any:
        return facts()
