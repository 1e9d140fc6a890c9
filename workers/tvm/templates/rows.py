"""Softmax and layer norm row by row, vectorised, while the row is in the nearest cache.

TVM makes each a chain of blocks: sums along a row are scalar, and softmax's exponentials are computed twice,
because their fast forms are inlined wherever they are read.
"""

from importlib import import_module
from textwrap import indent
from typing import Any

import tvm
from tvm import relax

rewriting = import_module(f"{__package__}.rewriting" if __package__ else "rewriting")

# exp(x) for x <= 0 as 2**n times a polynomial, with TVM's coefficients (topi.fast_exp).
_SOFTMAX = """
peak = T.sblock_alloc_buffer(({lanes},), "float32")
total = T.sblock_alloc_buffer(({lanes},), "float32")
for i in T.vectorized({lanes}):
    peak[i] = {x}[{at}i]
    total[i] = T.float32(0)
for c in range({chunks}):
    for i in T.vectorized({lanes}):
        peak[i] = T.max(peak[i], {x}[{at}c * {lanes} + i])
{highest}
for c in range({chunks}):
    for i in T.vectorized({lanes}):
        d: T.let = T.max({x}[{at}c * {lanes} + i] - peak[0], T.float32(-87.33654))
        n: T.let = T.floor(d * T.float32(1.44269502) + T.float32(0.5))
        f: T.let = d - n * T.float32(0.693147182)
        p: T.let = (T.float32(0.00019875691) * f + T.float32(0.0013981999)) * f + T.float32(0.00833345205)
        q: T.let = ((p * f + T.float32(0.0416657962)) * f + T.float32(0.166666657)) * f + T.float32(0.5)
        power: T.let = T.reinterpret("float32", T.shift_left(T.Cast("int32", n) + 127, 23))
        {y}[{at}c * {lanes} + i] = (q * f * f + f + T.float32(1)) * power
        total[i] = total[i] + {y}[{at}c * {lanes} + i]
{summed}
total[0] = T.float32(1) / total[0]
"""
_SCALED = """
for c in range({chunks}):
    for i in T.vectorized({lanes}):
        y[{row}, c * {lanes} + i] = y[{row}, c * {lanes} + i] * total[0]
"""
# A row that leaves a vector half empty lies in a buffer of whole vectors meanwhile.
_WIDENED = """
line = T.sblock_alloc_buffer(({whole},), "float32")
for i in T.vectorized({lanes}):
    line[{whole} - {lanes} + i] = T.float32(-3e38)
for c in range({full}):
    for i in T.vectorized({lanes}):
        line[c * {lanes} + i] = x[{row}, c * {lanes} + i]
for i in range({rest}):
    line[{full} * {lanes} + i] = x[{row}, {full} * {lanes} + i]
"""
_NARROWED = """
for c in range({full}):
    for i in T.vectorized({lanes}):
        y[{row}, c * {lanes} + i] = line[c * {lanes} + i] * total[0]
for i in range({rest}):
    y[{row}, {full} * {lanes} + i] = line[{full} * {lanes} + i] * total[0]
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


def rows(lanes: int = rewriting.LANES) -> Any:
    """The pass that rewrites both if a row is the last axis and fills whole vectors."""

    def rewrite(builder: Any, graph: Any) -> Any:
        graph = rewriting.rewrite_known(
            graph, "relax.nn.softmax", lambda call: _softmax(builder, call, lanes)
        )
        return rewriting.rewrite_known(
            graph, "relax.nn.layer_norm", lambda call: _layer_norm(builder, call, lanes)
        )

    return rewriting.graph_pass("Rows", rewrite)


def _softmax(builder: Any, call: Any, lanes: int) -> Any:
    beside = _beside(call, [call.attrs.axis], lanes)
    widened = not beside and _uneven(call, lanes)
    beside = beside or (lanes if widened else 0)
    if not beside:
        return call
    highest, summed = _across("peak", "T.max({}, {})", beside), _across("total", "{} + {}", beside)
    facts = {"highest": highest, "summed": summed}
    if widened:
        facts |= _widened(int(call.ty.shape[-1]), beside)
        return _call(builder, "softmax_rows", call, ["x"], _WIDENED + _SOFTMAX + _NARROWED, beside, facts)
    facts |= {"x": "x", "y": "y", "at": f"{_row(call.ty.ndim)}, "}
    return _call(builder, "softmax_rows", call, ["x"], _SOFTMAX + _SCALED, beside, facts)


def _uneven(call: Any, lanes: int) -> bool:
    """Whether the last axis is reduced, and fills one vector and a part of another at least."""
    last = call.ty.ndim - 1
    plain = call.ty.dtype == "float32" and last > 0 and int(call.attrs.axis) % (last + 1) == last
    return bool(plain and int(call.ty.shape[last]) > lanes)


def _widened(size: int, lanes: int) -> dict[str, Any]:
    full, rest = divmod(size, lanes)
    sizes = {"full": full, "rest": rest, "chunks": full + 1, "whole": (full + 1) * lanes}
    return {"x": "line", "y": "line", "at": "", **sizes}


def _layer_norm(builder: Any, call: Any, lanes: int) -> Any:
    """Two passes, mean first and then squared differences, to avoid cancellation."""
    attrs = call.attrs
    beside = _beside(call, attrs.axes, lanes)
    if not beside or not attrs.center or not attrs.scale:
        return call
    facts = {"share": repr(1 / int(call.ty.shape[-1])), "epsilon": repr(float(attrs.epsilon))}
    facts |= {"summed": _across("mean", "{} + {}", beside), "squared": _across("scale", "{} + {}", beside)}
    return _call(builder, "layer_norm_rows", call, ["x", "gamma", "beta"], _LAYER_NORM, beside, facts)


def _beside(call: Any, axes: Any, lanes: int) -> int:
    """How many numbers of a row are taken at once: narrow vectors two or four together, so that sums need
    not wait. 0 unless the operator reduces the last axis only, and that fills whole vectors.
    """
    last = call.ty.ndim - 1
    if last == 0 or call.ty.dtype != "float32":
        return 0
    if [int(axis) % (last + 1) for axis in axes] != [last]:
        return 0
    size, widths = int(call.ty.shape[last]), (rewriting.LANES >> shift for shift in range(4))
    return next((width for width in widths if width >= lanes and size % width == 0), 0)


def _across(name: str, combine: str, beside: int) -> str:
    """Reduce a vector into its first lane by halves."""
    lines, half = [], beside // 2
    while half > 1:
        pair = combine.format(f"{name}[i]", f"{name}[i + {half}]")
        lines.append(f"for i in T.vectorized({half}):\n    {name}[i] = {pair}")
        half //= 2
    return "\n".join([*lines, f"{name}[0] = {combine.format(f'{name}[0]', f'{name}[1]')}"])


def _call(
    builder: Any, name: str, call: Any, names: list[str], body: str, beside: int, facts: dict[str, Any]
) -> Any:
    """The call of a tensor function of rows that replaces an operator."""
    shapes = [tuple(map(int, value.ty.shape)) for value in (*call.args, call)]
    function = _function(dict(zip([*names, "y"], shapes, strict=True)), body, beside, facts)
    return relax.call_tir(builder.add_func(function, name), list(call.args), call.ty)


def _function(shapes: dict[str, tuple[int, ...]], body: str, beside: int, facts: dict[str, Any]) -> Any:
    """One block per row. Its last loop runs once, so that MetaSchedule vectorises it and not the rows."""
    *sizes, size = shapes["y"]
    loops = ", ".join(f"a{axis}" for axis in range(len(sizes)))
    row = _row(len(shapes["y"]))
    buffers = ", ".join(f'{name}: T.Buffer({shape}, "float32")' for name, shape in shapes.items())
    whole = {name: f"{row}, 0:{size}" if len(shape) > 1 else f"0:{size}" for name, shape in shapes.items()}
    reads = ", ".join(f"{name}[{place}]" for name, place in whole.items() if name != "y")
    text = body.format(**{"row": row, "chunks": size // beside, "lanes": beside} | facts)
    return tvm.script.from_source(f"""
@T.prim_func(private=True, s_tir=True)
def main({buffers}) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {rewriting.OPAQUE}}})
    for {loops}, once in T.grid({", ".join(map(str, sizes))}, 1):
        with T.sblock("row"):
            {row}, v_once = T.axis.remap("{"S" * len(shapes["y"])}", [{loops}, once])
            T.reads({reads})
            T.writes(y[{whole["y"]}])
{indent(text, " " * 12)}
""")


def _row(axes: int) -> str:
    return ", ".join(f"v{axis}" for axis in range(axes - 1))
