"""Between decoding and encoding: products and moves of the bytes themselves, and plain arithmetic.

Every reader decodes for itself what it reads, so that no decoded tensor is written. Bytes have no sign here,
as products want their data: bytes with a sign are moved up by 128.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from graphc.core import graph_rewriting
from graphc.quant import int8_depthwise_conv, int8_dot_products

_EXACT = 2**24 // (255 * int8_dot_products.OFFSET)  # products of bytes whose sums float32 holds
# Operators whose results are numbers that they were given.
_MOVES = frozenset(
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
_LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


@dataclass(frozen=True)
class Stored:
    """Numbers as they are stored: value = (data - zero) * scale, of each place along the axis or of all."""

    data: Any
    scale: Any
    zero: Any
    axis: int

    @property
    def same(self) -> bool:
        """Whether all have one scale."""
        return bool(self.scale.ndim == 0)

    @property
    def constant(self) -> bool:
        return isinstance(self.data, tvm.ir.GenericConst)

    def like(self, other: "Stored") -> bool:
        """Whether the same bytes are the same numbers."""
        alike = self.data.ty.dtype == other.data.ty.dtype and self.same and other.same
        return bool(alike and self.scale == other.scale and self.zero == other.zero)

    def decode(self) -> Any:
        zero, scale = (relax.const(value) for value in (self.zero, self.scale))
        return relax.op.dequantize(self.data, scale, zero, axis=self.axis, out_dtype="float32")


def integers() -> Any:
    """The pass; it leaves all to TVM where the target has no instruction for products of bytes."""
    return graph_rewriting.graph_pass("Integers", _rewrite)


def _rewrite(builder: Any, graph: Any) -> Any:
    by = int8_dot_products.instruction()
    if by is None:
        return graph
    found = _Integers(builder.get(), by).visit_expr(graph)
    found = graph_rewriting.rewrite_known(found, "relax.dequantize", _decoded)
    return graph_rewriting.rewrite_known(found, "relax.quantize", _encoded)


@mutator
class _Integers(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: Any, by: Any) -> None:
        super().__init__(mod)
        self._by = by
        self._rules = {
            "relax.quantize": self._quantized,
            "relax.dequantize": self._dequantized,
            "relax.nn.conv2d": self._product,
            "relax.matmul": self._product,
            "relax.concat": self._joined,
            "relax.nn.relu": self._positive,
            **dict.fromkeys(_MOVES, self._moved),
        }

    def visit_call_(self, call: Any) -> Any:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        rewrite = self._rules.get(getattr(call.op, "name", ""))
        found = None if rewrite is None else rewrite(call)
        return self._read(call) if found is None else found

    def _stored(self, value: Any) -> Stored | None:
        """What a value was decoded from."""
        found = self._call(value, "relax.dequantize")
        if found is None or found.ty.dtype != "float32":
            return None
        data, scale, zero = found.args
        if not all(isinstance(each, tvm.ir.GenericConst) for each in (scale, zero)):
            return None
        bound = self.lookup_binding(data) if isinstance(data, relax.Var) else None
        data = bound if isinstance(bound, tvm.ir.GenericConst) else data
        return Stored(data, scale.value.numpy(), zero.value.numpy(), int(found.attrs.axis))

    def _call(self, value: Any, operator: str) -> Any | None:
        bound = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        named = isinstance(bound, relax.Call) and getattr(bound.op, "name", "") == operator
        return bound if named else None

    def _unsigned(self, value: Any) -> Any | None:
        """What bytes with a sign were moved down from, by `_signed`."""
        narrow = self._call(value, "relax.astype")
        less = None if narrow is None else self._call(narrow.args[0], "relax.subtract")
        wide = None if less is None else self._call(less.args[0], "relax.astype")
        if narrow is None or wide is None or narrow.ty.dtype != "int8":
            return None
        return wide.args[0] if wide.args[0].ty.dtype == "uint8" else None

    def _quantized(self, call: Any) -> Any | None:
        data, scale, zero = call.args
        if all(isinstance(each, tvm.ir.GenericConst) for each in call.args):
            return _encoded_weights(call)
        known = all(isinstance(each, tvm.ir.GenericConst) and each.ty.ndim == 0 for each in (scale, zero))
        if not known or call.ty.dtype not in ("int8", "uint8"):
            return None
        signed = call.ty.dtype == "int8"
        shift = int8_dot_products.OFFSET if signed else 0
        wanted = np.array(int(zero.value.numpy()) + shift, "uint8")
        stored = self._stored(data)
        if (
            stored is not None
            and stored.same
            and not stored.constant
            and stored.data.ty.dtype == "uint8"
            and stored.scale == scale.value.numpy()
            and stored.zero == wanted
        ):
            return _signed(stored.data) if signed else stored.data
        data = self._decoded_again(data)
        found = relax.op.quantize(data, scale, relax.const(wanted), axis=0, out_dtype="uint8")
        return _signed(found) if signed else found

    def _dequantized(self, call: Any) -> Any:
        unsigned = self._unsigned(call.args[0])
        _, scale, zero = call.args
        if unsigned is None or zero.ty.ndim or not isinstance(zero, tvm.ir.GenericConst):
            return call
        moved = relax.const(np.array(int(zero.value.numpy()) + int8_dot_products.OFFSET, "uint8"))
        return relax.op.dequantize(unsigned, scale, moved, axis=0, out_dtype=str(call.ty.dtype))

    def _read(self, call: Any) -> Any:
        """The call, which decodes what it reads for itself."""
        return relax.Call(call.op, [self._decoded_again(arg) for arg in call.args], call.attrs, call.ty_args)

    def _decoded_again(self, value: Any) -> Any:
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._decoded_again(field) for field in value.fields])
        stored = self._stored(value)
        return value if stored is None or stored.constant else stored.decode()

    def _moved(self, call: Any) -> Any | None:
        """A move of bytes, and what it moved decoded behind it."""
        value, *rest = call.args
        unsigned = self._unsigned(value)
        if unsigned is not None:
            return _signed(relax.Call(call.op, [unsigned, *rest], call.attrs, call.ty_args))
        stored = self._stored(value)
        if stored is None:
            return None
        if stored.constant or not stored.same:
            return self._transposed(call, stored)
        moved = relax.Call(call.op, [stored.data, *rest], call.attrs, call.ty_args)
        return Stored(moved, stored.scale, stored.zero, 0).decode()

    def _positive(self, call: Any) -> Any | None:
        """A limit of the bytes, which have the same steps as before."""
        stored = self._stored(call.args[0])
        if stored is None or stored.constant or not stored.same:
            return None
        data, dtype = stored.data, str(stored.data.ty.dtype)
        if dtype not in _LIMITS:
            return None
        if stored.zero > _LIMITS[dtype][0]:
            data = relax.op.maximum(data, relax.const(stored.zero.astype(dtype)))
        return Stored(data, stored.scale, stored.zero, 0).decode()

    def _transposed(self, call: Any, stored: Stored) -> Any | None:
        """Weights, transposed at once."""
        if call.op.name != "relax.permute_dims" or not stored.constant:
            return None
        axes = [int(axis) for axis in call.attrs.axes or range(call.ty.ndim)[::-1]]
        data = relax.const(np.ascontiguousarray(stored.data.value.numpy().transpose(axes)))
        return Stored(data, stored.scale, stored.zero, axes.index(stored.axis % len(axes))).decode()

    def _joined(self, call: Any) -> Any | None:
        parts = call.args[0]
        fields = parts.fields if isinstance(parts, relax.Tuple) else ()
        stored = [self._stored(field) for field in fields]
        first = stored[0] if stored else None
        if first is None or not all(each is not None and first.like(each) for each in stored):
            return None
        joined = relax.op.concat([each.data for each in stored if each is not None], axis=call.attrs.axis)
        return Stored(joined, first.scale, first.zero, 0).decode()

    def _product(self, call: Any) -> Any | None:
        """A product of bytes with constant weights, if an instruction or vectors can compute it."""
        data, weights = (self._stored(arg) for arg in call.args)
        if data is None or weights is None or not data.same or not graph_rewriting.known(call):
            return None
        made = _weights(weights)
        if made is None or data.data.ty.dtype not in ("int8", "uint8") or call.ty.dtype != "float32":
            return None
        convolves = call.op.name == "relax.nn.conv2d"
        axis = 0 if convolves else 1
        if (not weights.same and weights.axis % made.ndim != axis) or not self._fits(call, made):
            return None
        shifted = data.data
        if data.zero:
            wide = relax.op.astype(data.data, "int16")
            shifted = relax.op.subtract(wide, relax.const(np.array(data.zero, "int16")))
        scale = (data.scale * weights.scale).astype("float32")
        if convolves and scale.ndim:
            scale = scale.reshape(1, -1, 1, 1)
        if convolves and _real_taps(call, made):
            numbers = relax.const(made.astype("float32"))
            found = graph_rewriting.convolution(call, relax.op.astype(shifted, "float32"), numbers)
        else:
            multiply = partial(graph_rewriting.convolution, call) if convolves else relax.op.matmul
            found = relax.op.astype(multiply(shifted, relax.const(made), out_dtype="int32"), "float32")
        return relax.op.multiply(found, relax.const(scale))

    def _fits(self, call: Any, weights: Any) -> bool:
        if call.op.name == "relax.matmul":
            return bool(
                weights.ndim == 2
                and call.args[0].ty.ndim >= 2
                and graph_rewriting.mostly_whole(weights.shape[1], self._by.lanes)
            )
        attrs = call.attrs
        plain = (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW")
        depthwise = int(attrs.groups) == graph_rewriting.sizes_of(call.args[0])[1] == weights.shape[0] > 1
        whole = int(attrs.groups) == 1 and graph_rewriting.mostly_whole(weights.shape[0], self._by.lanes)
        rows = weights.shape[1] % int8_dot_products.QUAD == 0 or int(attrs.dilation[1]) == 1
        return bool(plain and ((depthwise and weights.shape[1] == 1) or (whole and rows)))


def _signed(value: Any) -> Any:
    wide = relax.op.subtract(relax.op.astype(value, "int16"), relax.const(int8_dot_products.OFFSET, "int16"))
    return relax.op.astype(wide, "int8")


def _encoded_weights(call: Any) -> Any | None:
    """Weights that a file holds as real numbers, to be encoded where they are read."""
    if str(call.ty.dtype) not in _LIMITS:
        return None
    places = [-1 if at == int(call.attrs.axis) % call.ty.ndim else 1 for at in range(call.ty.ndim)]
    values, scale, zero = (each.value.numpy() for each in call.args)
    scale, zero = (each.reshape(places) if each.ndim else each for each in (scale, zero))
    whole = np.rint(values / scale) + zero.astype("float32")
    return relax.const(np.clip(whole, *_LIMITS[str(call.ty.dtype)]).astype(str(call.ty.dtype)))


def _weights(stored: Stored) -> Any | None:
    """Constant weights less their zero point, if they are bytes then."""
    if not stored.constant or stored.data.ty.dtype not in ("int8", "uint8"):
        return None
    zero = stored.zero.astype("int32")
    if zero.ndim:
        zero = zero.reshape([-1 if at == stored.axis else 1 for at in range(stored.data.ty.ndim)])
    values = stored.data.value.numpy().astype("int32") - zero
    fits = (
        values.min(initial=0) >= -int8_dot_products.OFFSET
        and values.max(initial=0) < int8_dot_products.OFFSET
    )
    return values.astype("int8") if fits else None


def _real_taps(call: Any, weights: Any) -> bool:
    """Whether `taps` may sum up a depthwise convolution: float32 holds its sums exactly."""
    outputs, _, *window = weights.shape
    each = int(call.attrs.groups) == outputs and outputs % int8_depthwise_conv.NARROWEST == 0
    return bool(each and np.prod(window) <= _EXACT)


def _decoded(call: Any) -> Any:
    """Decoding as plain arithmetic."""
    data, scale, zero = call.args
    if call.ty.dtype != "float32":
        return call
    scale, zero = _along(call, scale), _real(_along(call, zero))
    wide = relax.op.astype(data, "float32")
    return relax.op.multiply(wide if zero is None else relax.op.subtract(wide, zero), scale)


def _encoded(call: Any) -> Any:
    """Encoding as plain arithmetic: multiplied, rounded to even, and within the type's limits."""
    data, scale, zero = call.args
    if str(call.ty.dtype) not in _LIMITS or data.ty.dtype != "float32":
        return call
    scale, zero = _along(call, scale), _real(_along(call, zero))
    if isinstance(scale, tvm.ir.GenericConst):
        scaled = relax.op.multiply(data, relax.const(np.float32(1) / scale.value.numpy()))
    else:
        scaled = relax.op.divide(data, scale)
    whole = relax.op.round(scaled)
    moved = whole if zero is None else relax.op.add(whole, zero)
    least, most = (relax.const(limit, "float32") for limit in _LIMITS[str(call.ty.dtype)])
    within = relax.op.minimum(relax.op.maximum(moved, least), most)  # layouts pass these, and no clip
    return relax.op.astype(relax.op.astype(within, "int32"), call.ty.dtype)


def _real(zero: Any) -> Any | None:
    """A zero point as a real number, None where it is zero."""
    if not isinstance(zero, tvm.ir.GenericConst):
        return relax.op.astype(zero, "float32")
    known = zero.value.numpy().astype("float32")
    return relax.const(known) if known.any() else None


def _along(call: Any, value: Any) -> Any:
    """A scale or zero point of each place along the axis, so that it meets those."""
    if not value.ty.ndim:
        return value
    ndim, axis = call.args[0].ty.ndim, int(call.attrs.axis) % call.args[0].ty.ndim
    shape = [-1 if at == axis else 1 for at in range(ndim)]
    if isinstance(value, tvm.ir.GenericConst):
        return relax.const(value.value.numpy().reshape(shape))
    return relax.op.reshape(value, shape)
