"""What bytes and sums of their products become where real numbers are needed, computed at once."""

from typing import Any

from graphc.core.graph import Graph
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import known, sizes_of
from graphc.core.reporting_pass import Leave
from graphc.quant.linear_sums import ARITHMETIC, Linear, LinearSums, call_linear
from graphc.quant.quantized_value import BYTES

_PRODUCTS = ("relax.call_tir", "relax.nn.conv2d", "relax.matmul")


class FuseDequantize(Pass[Linear]):
    """Makes real numbers of bytes and of sums of their products in one function with scales as arguments."""

    name, match = "quant.fuse_dequantize", ARITHMETIC
    after = ("quant.fuse_requantize",)

    def check(self, call: Any, g: Graph) -> Linear:
        found = LinearSums(g).of(call)
        if found is None or not any(_counts(value, g) for value, _ in found.terms):
            raise Leave("it sums up no bytes, and no products of bytes")
        if not found.is_of_sizes(sizes_of(call)):
            raise Leave("what it sums up has other sizes")
        if _is_part(g):
            raise Leave("it is part of a sum that is rewritten as a whole")
        return found

    def rewrite(self, call: Any, facts: Linear, g: Graph) -> Any:
        return call_linear("to_reals", facts, "{}", call.ty, g)


def _is_part(g: Graph) -> bool:
    """Whether the only call that reads the sum is one that goes on with it, and is rewritten."""
    reader = g.only_reader(g.variable, *ARITHMETIC)
    whole = LinearSums(g).of(reader) if reader is not None and known(reader) else None
    return whole is not None and g.variable in whole.inside and whole.is_of_sizes(sizes_of(reader))


def _counts(value: Any, g: Graph) -> bool:
    """Whether these are bytes, or sums of a product's bytes: other integers may be places."""
    if value.ty.dtype in BYTES:
        return True
    return value.ty.dtype == "int32" and g.producer(value, *_PRODUCTS) is not None
