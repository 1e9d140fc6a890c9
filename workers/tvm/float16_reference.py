"""Programs that compute in float16: the same in float32, and how far rounding may carry their results apart.

A sum of n terms of both signs that is kept in float16 has an error of about 0.15 eps sqrt(n), relative to the
spread of such sums: a random walk of rounding errors. Sums of positive terms, and few results, can have a
larger one: a small program is therefore also run as it is written.
"""

from math import prod, sqrt
from typing import Any, Final

import tvm
from tvm.ir import Call
from tvm.tirx import Add, Cast, Div, Mul, Sub

from graphc.core.graph_rewriting import collect
from workers.tvm.program_blocks import blocks_of

_FLOAT16: Final = "float16"
_EPS: Final = 2.0**-10
# Of intermediate results, such as the argument of an exponential.
_ROUNDINGS: Final = 4
_WALK: Final = 0.5
# What a schedule with another order may be off, in errors of the program as it is written.
OWN_ERRORS: Final = 2.0
# Terms that a processor without float16 computes in a second.
_SMALL: Final = 2**24
# What looks at the bits of a number means that type.
_OF_BITS: Final = ("tirx.reinterpret", "call_llvm", "pragma_import_llvm")


def widened(tir: str) -> Any | None:
    """Return a program with float32 for float16; None if it has no float16, or looks at its bits."""
    if f'"{_FLOAT16}' not in tir or any(each in tir for each in _OF_BITS):
        return None
    return tvm.ir.load_json(tir.replace(f'"{_FLOAT16}', '"float32'))


def rounding_error(mod: Any) -> float:
    """Return the relative error that float16 arithmetic leaves; 0 for a program that only moves numbers."""
    stores = [(block, store) for block in blocks_of(mod) for store in block.stores]
    sums = [block.terms for block, store in stores if block.reduced and _is_float16(store.value)]
    computes = any(
        _is_float16(node)
        for _, store in stores
        for kind in (Add, Sub, Mul, Div, Call, Cast)
        for node in collect(store.value, kind)
    )
    return _EPS * (_ROUNDINGS * computes + _WALK * sqrt(max(sums, default=0)))


def is_small(mod: Any) -> bool:
    """Return whether the program is fast to run in float16 on a processor that has no such arithmetic."""
    return sum(prod(block.extents) for block in blocks_of(mod)) <= _SMALL


def _is_float16(value: Any) -> bool:
    return str(value.ty) == _FLOAT16
