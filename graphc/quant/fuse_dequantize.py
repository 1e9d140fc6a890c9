"""Fuse the conversion of bytes, and of sums of their products, to floats in one function."""

from typing import Any

from graphc.core.graph import Graph
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import known, sizes_of
from graphc.core.reporting_pass import Leave
from graphc.quant.linear_sums import ARITHMETIC, Linear, LinearSums, call_linear
from graphc.quant.quantized_value import BYTES

_PRODUCTS = ("relax.call_tir", "relax.nn.conv2d", "relax.matmul")


class FuseDequantize(Pass[Linear]):
    """Converts bytes and sums of byte products to floats in one function with scales as arguments."""

    name, match = "quant.fuse_dequantize", ARITHMETIC
    after = ("quant.fuse_requantize",)

    def check(self, call: Any, g: Graph) -> Linear:
        linear = LinearSums(g).of(call)
        if linear is None or not any(_counts(value, g) for value, _ in linear.terms):
            raise Leave("it sums up no bytes, and no products of bytes")
        if not linear.is_of_sizes(sizes_of(call)):
            raise Leave("what it sums up has other sizes")
        if _is_part(g):
            raise Leave("it is part of a sum that is rewritten as a whole")
        return linear

    def rewrite(self, call: Any, facts: Linear, g: Graph) -> Any:
        return call_linear("to_reals", facts, "{}", call.ty, g)


def _is_part(g: Graph) -> bool:
    """Return whether the sum's only reader continues it and is itself rewritten."""
    reader = g.only_reader(g.variable, *ARITHMETIC)
    total = LinearSums(g).of(reader) if reader is not None and known(reader) else None
    return total is not None and g.variable in total.inside and total.is_of_sizes(sizes_of(reader))


def _counts(value: Any, g: Graph) -> bool:
    """Return whether values are bytes or sums of their products, and not, say, indices."""
    if value.ty.dtype in BYTES:
        return True
    return value.ty.dtype == "int32" and g.producer(value, *_PRODUCTS) is not None
