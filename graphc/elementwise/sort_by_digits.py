"""Lower sorts and TopK to loops that need no function outside the library.

TVM calls functions of its full wheel for them, which `mallorn_runtime` lacks.

The loops are a radix sort, or insert elements one by one if there are few. Numbers become
unsigned keys of the same order; equal numbers keep their order. TopK of a long axis first
counts the leading digits of all keys, and sorts only keys that may be among the first k.
"""

from dataclasses import dataclass
from math import prod
from textwrap import indent
from typing import Any

from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import OPAQUE, has_known_sizes, parse_tvmscript, sizes_of

DIGIT_BITS, LEADING_BITS = 8, 11
# Limits for inserting elements one by one: of elements to keep, or of these times the axis' length.
FEW, MOST_INSERTIONS = 16, 4096
SMALL = 4 << LEADING_BITS  # for shorter axes, counting leading digits costs more than it saves
_BITS = {"float32": 32, "float64": 64} | {
    f"{kind}{bits}": bits for kind in ("int", "uint") for bits in (8, 16, 32, 64)
}
_TOPK, _SORT, _ARGSORT = "relax.topk", "relax.sort", "relax.argsort"


@dataclass(frozen=True)
class SortedRows:
    """The data's shape as [before, axis, after], and the number of elements that are kept."""

    shape: tuple[int, int, int]
    kept: int
    is_descending: bool


class SortByDigits(Pass[SortedRows]):
    """Sorts by loops, because TVM's function for it is not in the runtime's wheel."""

    name, match = "sort_by_digits", (_TOPK, _SORT, _ARGSORT)
    dtype, any_size = "", True  # the result may be a tuple

    def check(self, call: Any, g: Graph) -> SortedRows:
        data = call.args[0]
        if not has_known_sizes(call):
            raise Leave("the sizes of the operator are known only at run time")
        if str(data.ty.dtype) not in _BITS:
            raise Leave(f"the pass does not sort {data.ty.dtype}")
        sizes = sizes_of(data)
        axis = int(call.attrs.axis) % len(sizes)
        length, is_topk = sizes[axis], call.op.name == _TOPK
        kept = min(int(call.attrs.k), length) if is_topk and int(call.attrs.k) > 0 else length
        if not prod(sizes):
            raise Leave("there is nothing to sort")
        descends = call.attrs.largest if is_topk else call.attrs.descending
        return SortedRows((prod(sizes[:axis]), length, prod(sizes[axis + 1 :])), kept, bool(descends))

    def rewrite(self, call: Any, facts: SortedRows, g: Graph) -> Any:
        data, name = call.args[0], call.op.name
        dtype, (outer, length, inner) = str(data.ty.dtype), facts.shape
        place_type = "int32" if name == _SORT else str(call.attrs.dtype)
        both = [relax.TensorType((outer, facts.kept, inner), kind) for kind in (dtype, place_type or "int32")]
        function = _sort_function(facts, dtype, str(both[1].dtype))
        sorted_rows = g.call_function(
            "sorted", function, [relax.op.reshape(data, (outer, length, inner))], both
        )
        sizes, axis = list(sizes_of(data)), int(call.attrs.axis)
        sizes[axis] = facts.kept
        values, places = (
            relax.op.reshape(relax.TupleGetItem(sorted_rows, index), tuple(sizes)) for index in (0, 1)
        )
        if name == _TOPK and call.attrs.ret_type == "both":
            return relax.Tuple([values, places])
        return values if name == _SORT or getattr(call.attrs, "ret_type", "") == "values" else places


def _sort_function(rows: SortedRows, dtype: str, place_type: str) -> Any:
    """Return the tensor function that writes the first elements of each sorted row, and
    their places in the row. Rows are sorted in parallel."""
    outer, length, inner = rows.shape
    bits, count, kept = _BITS[dtype], outer * inner, rows.kept
    is_short = kept <= FEW or length * kept <= MOST_INSERTIONS
    code = _Code(f"x[row // {inner}, i, row % {inner}]", dtype, rows.is_descending)
    if is_short:
        body, first = code.insert(length, kept), 1
    else:
        selects = length > SMALL and kept * 2 <= length
        body, first = (code.select(length, kept) if selects else code.take_all(length)) + code.sort(), 0
    result = f"{0 if is_short else bits // DIGIT_BITS % 2}, i + {first}"
    size, loop = max(length, kept + 2), "T.parallel" if count > 1 else "T.serial"
    types = [f'T.Buffer({(outer, kept, inner)}, "{kind}")' for kind in (dtype, place_type)]
    place = f"row // {inner}, i, row % {inner}"
    return parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(x: T.Buffer({rows.shape}, "{dtype}"), values: {types[0]}, indices: {types[1]}) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OPAQUE}}})
    with T.sblock("root"):
        keys = T.sblock_alloc_buffer(({count}, 2, {size}), "{code.unsigned}")
        places = T.sblock_alloc_buffer(({count}, 2, {size}), "int32")
        bins = T.sblock_alloc_buffer(({count}, {1 << LEADING_BITS}), "int32")
        found = T.sblock_alloc_buffer(({count}, 16), "int32")
        for row in {loop}({count}):
{indent(body, " " * 12)}
            for i in range({kept}):
                indices[{place}] = T.Cast("{place_type}", places[row, {result}])
                values[{place}] = x[row // {inner}, places[row, {result}], row % {inner}]
""")


class _Code:
    """TVMScript of the steps that sort row `row`: `keys` and `places` hold two copies of
    its elements, `found[row, 0]` is the number of elements."""

    def __init__(self, element: str, dtype: str, is_descending: bool) -> None:
        self._bits = bits = _BITS[dtype]
        self.unsigned = unsigned = f"uint{bits}"
        key = _key(element, dtype, bits)
        self._key = f"T.bitwise_not({key})" if is_descending else key
        shifted = f"T.shift_right(keys[row, p % 2, found[row, 3]], T.Cast('{unsigned}', p * {DIGIT_BITS}))"
        mask = f"T.{unsigned}({(1 << DIGIT_BITS) - 1})"
        self._digit = f"bins[row, T.Cast('int32', T.bitwise_and({shifted}, {mask}))]"

    def insert(self, length: int, kept: int) -> str:
        """Keep the first `kept` elements in order, from slot 1 on; slot 0 holds the least key."""
        return f"""
found[row, 0] = 0
keys[row, 0, 0] = T.{self.unsigned}(0)
for i in range({length}):
    keys[row, 1, 0] = {self._key}
    if found[row, 0] < {kept} or keys[row, 1, 0] < keys[row, 0, {kept}]:
        found[row, 1] = T.min(found[row, 0], {kept - 1})
        while keys[row, 0, found[row, 1]] > keys[row, 1, 0]:
            keys[row, 0, found[row, 1] + 1] = keys[row, 0, found[row, 1]]
            places[row, 0, found[row, 1] + 1] = places[row, 0, found[row, 1]]
            found[row, 1] = found[row, 1] - 1
        keys[row, 0, found[row, 1] + 1] = keys[row, 1, 0]
        places[row, 0, found[row, 1] + 1] = i
        found[row, 0] = T.min(found[row, 0] + 1, {kept})
"""

    def take_all(self, length: int) -> str:
        return f"""
found[row, 0] = {length}
for i in range({length}):
    keys[row, 0, i] = {self._key}
    places[row, 0, i] = i
"""

    def select(self, length: int, kept: int) -> str:
        """Take the elements whose leading digit is at most that of the last element to keep."""
        leading = min(LEADING_BITS, self._bits)
        digit = f"T.Cast('int32', T.shift_right({self._key}, T.{self.unsigned}({self._bits - leading})))"
        return f"""
for b in range({1 << leading}):
    bins[row, b] = 0
for i in range({length}):
    bins[row, {digit}] = bins[row, {digit}] + 1
found[row, 0] = 0
found[row, 1] = 0
while found[row, 0] < {kept}:
    found[row, 0] = found[row, 0] + bins[row, found[row, 1]]
    found[row, 1] = found[row, 1] + 1
found[row, 2] = 0
for i in range({length}):
    if {digit} < found[row, 1]:
        keys[row, 0, found[row, 2]] = {self._key}
        places[row, 0, found[row, 2]] = i
        found[row, 2] = found[row, 2] + 1
"""

    def sort(self) -> str:
        """Sort by each digit in turn, from copy `p % 2` to the other. Loops over the elements are
        `while` loops: other parts take the extent of a `for` for a constant."""
        digit = self._digit
        return f"""
for p in range({self._bits // DIGIT_BITS}):
    for b in range({1 << DIGIT_BITS}):
        bins[row, b] = 0
    found[row, 3] = 0
    while found[row, 3] < found[row, 0]:
        {digit} = {digit} + 1
        found[row, 3] = found[row, 3] + 1
    found[row, 1] = 0
    for b in range({1 << DIGIT_BITS}):
        found[row, 2] = bins[row, b]
        bins[row, b] = found[row, 1]
        found[row, 1] = found[row, 1] + found[row, 2]
    found[row, 3] = 0
    while found[row, 3] < found[row, 0]:
        keys[row, 1 - p % 2, {digit}] = keys[row, p % 2, found[row, 3]]
        places[row, 1 - p % 2, {digit}] = places[row, p % 2, found[row, 3]]
        {digit} = {digit} + 1
        found[row, 3] = found[row, 3] + 1
"""


def _key(element: str, dtype: str, bits: int) -> str:
    """Return the expression of an unsigned integer with the order of the element's type."""
    unsigned = f"uint{bits}"
    sign = f"T.shift_left(T.{unsigned}(1), T.{unsigned}({bits - 1}))"
    if dtype.startswith("u"):
        return element
    if dtype.startswith("int"):
        return f"T.bitwise_xor(T.reinterpret('{unsigned}', {element}), {sign})"
    zero = f"T.{dtype}(0)"  # -0 equals 0
    pattern = f"T.reinterpret('{unsigned}', T.Select({element} == {zero}, {zero}, {element}))"
    negative = f"T.{unsigned}(0) - T.shift_right({pattern}, T.{unsigned}({bits - 1}))"
    return f"T.bitwise_xor({pattern}, T.bitwise_or({negative}, {sign}))"
