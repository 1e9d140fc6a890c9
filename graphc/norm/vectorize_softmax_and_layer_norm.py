"""Compute softmax, log-softmax and layer norm row by row in vectors, with the row in cache.

TVM computes each in several blocks with scalar sums along a row. It computes the
exponentials of softmax twice, because their fast form is inlined wherever it is read.
"""

import re
from dataclasses import dataclass
from textwrap import dedent, indent
from typing import Any

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import LANES, OPAQUE, parse_tvmscript, sizes_of

# exp(x) for x <= 0 as 2**n times a polynomial, with TVM's coefficients (topi.fast_exp). The
# lowest n gives zero, because denormal results for masked values would slow down products.
_POWERS = """
peak = T.sblock_alloc_buffer(({lanes},), "float32")
total = T.sblock_alloc_buffer(({lanes},), "float32")
for i in T.vectorized({lanes}):
    peak[i] = x[{row}, i]
    total[i] = T.float32(0)
for c in range({chunks}):
    for i in T.vectorized({lanes}):
        peak[i] = T.max(peak[i], x[{row}, c * {lanes} + i])
{highest}
for c in range({chunks}):
    for i in T.vectorized({lanes}):
        d: T.let = T.max(x[{row}, c * {lanes} + i] - peak[0], T.float32(-88))
        n: T.let = T.floor(d * T.float32(1.44269502) + T.float32(0.5))
        f: T.let = d - n * T.float32(0.693147182)
        p: T.let = (T.float32(0.00019875691) * f + T.float32(0.0013981999)) * f + T.float32(0.00833345205)
        q: T.let = ((p * f + T.float32(0.0416657962)) * f + T.float32(0.166666657)) * f + T.float32(0.5)
        power: T.let = T.reinterpret("float32", T.shift_left(T.Cast("int32", n) + 127, 23))
"""

_SHARES = """        y[{row}, c * {lanes} + i] = (q * f * f + f + T.float32(1)) * power
        total[i] = total[i] + y[{row}, c * {lanes} + i]
{summed}
total[0] = T.float32(1) / total[0]
for c in range({chunks}):
    for i in T.vectorized({lanes}):
        y[{row}, c * {lanes} + i] = y[{row}, c * {lanes} + i] * total[0]
"""

_LOGARITHMS = """        total[i] = total[i] + (q * f * f + f + T.float32(1)) * power
{summed}
total[0] = T.log(total[0]) + peak[0]
for c in range({chunks}):
    for i in T.vectorized({lanes}):
        y[{row}, c * {lanes} + i] = x[{row}, c * {lanes} + i] - total[0]
"""

# The numbers after the last whole vector, padded with the lowest float.
_REST = """
z = T.sblock_alloc_buffer(({lanes},), "float32")
for i in T.vectorized({lanes}):
    z[i] = T.min_value("float32")
for i in range({rest}):
    z[i] = x[{row}, {chunks} * {lanes} + i]
"""

_REST_TAKEN = """
for i in range({rest}):
    y[{row}, {chunks} * {lanes} + i] = z[i]
"""

_LAYER_NORM = """
mean = T.sblock_alloc_buffer(({lanes},), "float32")
scale = T.sblock_alloc_buffer(({lanes},), "float32")
for i in T.vectorized({lanes}):
    mean[i] = T.float32(0)
    scale[i] = T.float32(0)
for c in range({chunks}):
    for i in T.vectorized({lanes}):
        mean[i] = mean[i] + x[{row}, c * {lanes} + i]
{summed}
mean[0] = mean[0] * T.float32({share})
for c in range({chunks}):
    for i in T.vectorized({lanes}):
        d: T.let = x[{row}, c * {lanes} + i] - mean[0]
        scale[i] = scale[i] + d * d
{squared}
scale[0] = T.float32(1) / T.sqrt(scale[0] * T.float32({share}) + T.float32({epsilon}))
for c in range({chunks}):
    for i in T.vectorized({lanes}):
        d: T.let = (x[{row}, c * {lanes} + i] - mean[0]) * scale[0]
        y[{row}, c * {lanes} + i] = d * gamma[c * {lanes} + i] + beta[c * {lanes} + i]
"""

LAYER_NORM = "relax.nn.layer_norm"
_SOFTMAXES = {"relax.nn.softmax": _SHARES, "relax.nn.log_softmax": _LOGARITHMS}


@dataclass(frozen=True)
class Row:
    """The vector width for a row, and how many elements follow its last whole vector."""

    width: int
    rest: int


class VectorizeSoftmaxAndLayerNorm(Pass[Row]):
    """Computes softmax, log-softmax and layer norm row by row, in vectors."""

    name, match = "vectorize_softmax_and_layer_norm", (*_SOFTMAXES, LAYER_NORM)

    def check(self, call: Any, g: Graph) -> Row:
        last, size = call.ty.ndim - 1, int(call.ty.shape[-1])
        normed = operator_name(call) == LAYER_NORM
        axes = call.attrs.axes if normed else [call.attrs.axis]
        if not last or [int(axis) % (last + 1) for axis in axes] != [last]:
            raise Leave("the softmax or norm is not along the last axis of rows")
        # Use two or four narrow vectors at once, so that sums need not wait; 0 if none fits.
        widths = (LANES >> shift for shift in range(4))
        width = next((width for width in widths if width >= g.lanes and size % width == 0), 0)
        if normed and (not call.attrs.center or not call.attrs.scale):
            raise Leave("the norm has no gains, or no offsets")
        if (normed and not width) or 2 * size < g.lanes:
            raise Leave(f"the rows are short, or do not split into vectors of {g.lanes}")
        return Row(width or g.lanes, size % (width or g.lanes))

    def rewrite(self, call: Any, facts: Row, g: Graph) -> Any:
        shapes = [sizes_of(value) for value in (*call.args, call)]
        if operator_name(call) == LAYER_NORM:
            # Two passes, mean first and then squared differences, to avoid cancellation.
            parts = {
                "share": repr(1 / shapes[-1][-1]),
                "epsilon": repr(float(call.attrs.epsilon)),
                "summed": _format_vector_reduction("mean", "{} + {}", facts.width),
                "squared": _format_vector_reduction("scale", "{} + {}", facts.width),
            }
            shape_by_name = dict(zip(("x", "gamma", "beta", "y"), shapes, strict=True))
            function = _function(shape_by_name, _LAYER_NORM, facts.width, parts)
            return g.call_function("layer_norm_rows", function, list(call.args), call.ty)
        text = _POWERS + _SOFTMAXES[operator_name(call)]
        text = _add_remainder_loops(text) if facts.rest else text
        parts = {
            "highest": _format_vector_reduction("peak", "T.max({}, {})", facts.width),
            "summed": _format_vector_reduction("total", "{} + {}", facts.width),
            "rest": str(facts.rest),
        }
        shape_by_name = dict(zip("xy", shapes, strict=True))
        function = _function(shape_by_name, text, facts.width, parts)
        return g.call_function("softmax_rows", function, list(call.args), call.ty)


def _add_remainder_loops(text: str) -> str:
    """Add a copy of every loop to the code, for the elements after the last full vector."""

    def repeat(loop: re.Match[str]) -> str:
        statements = dedent(loop[1]).replace("x[{row}, c * {lanes} + i]", "z[i]")
        return loop[0] + statements.replace("y[{row}, c * {lanes} + i]", "z[i]")

    first = text.replace("x[{row}, i]", "z[i]")
    return _REST + re.sub(r"for c in range\(\{chunks\}\):\n((?: .*\n)+)", repeat, first) + _REST_TAKEN


def _format_vector_reduction(name: str, combine: str, width: int) -> str:
    """Return code that reduces a vector to its first lane, halving it in each step."""
    lines, half = [], width // 2
    while half > 1:
        pair = combine.format(f"{name}[i]", f"{name}[i + {half}]")
        lines.append(f"for i in T.vectorized({half}):\n    {name}[i] = {pair}")
        half //= 2
    return "\n".join([*lines, f"{name}[0] = {combine.format(f'{name}[0]', f'{name}[1]')}"])


def _function(shapes: dict[str, tuple[int, ...]], body: str, width: int, terms: dict[str, str]) -> Any:
    """Build a function with one block per row; its dummy last loop is for MetaSchedule."""
    *sizes, size = shapes["y"]
    loops = ", ".join(f"a{axis}" for axis in range(len(sizes)))
    row = ", ".join(f"v{axis}" for axis in range(len(sizes)))
    buffers = ", ".join(f'{name}: T.Buffer({shape}, "float32")' for name, shape in shapes.items())
    regions = {name: f"{row}, 0:{size}" if len(shape) > 1 else f"0:{size}" for name, shape in shapes.items()}
    reads = ", ".join(f"{name}[{place}]" for name, place in regions.items() if name != "y")
    text = body.format(row=row, chunks=size // width, lanes=width, **terms)
    return parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main({buffers}) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OPAQUE}}})
    for {loops}, once in T.grid({", ".join(map(str, sizes))}, 1):
        with T.sblock("row"):
            {row}, v_once = T.axis.remap("{"S" * len(shapes["y"])}", [{loops}, once])
            T.reads({reads})
            T.writes(y[{regions["y"]}])
{indent(text, " " * 12)}
""")
