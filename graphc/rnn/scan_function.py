"""Build LSTM, GRU and RNN layers as one function: blocks step through sequences.

A product over all steps computes the inputs' contribution beforehand. Weights of the state
are packed so that a step reads them once in order: some vectors of hidden units at a time,
with all their gates. The state stays in cache.

Weights of 8 bits stay bytes where an instruction multiplies them: a step rounds its state
to 16 bits, and multiplies the upper and the lower byte.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from textwrap import indent
from typing import Any

import numpy as np

from mallorn.graphc.core.graph_rewriting import OPAQUE, OPERATOR, WORK, largest_factor, parse_tvmscript
from mallorn.graphc.quant.dot_product_function import QUAD
from mallorn.graphc.quant.llvm_byte_dot_products import Function

# Vectors summed at the same time, to hide the latency of additions, and their share of registers.
BUSY, OF_SUMS = 8, 0.75
LARGEST_HALF = 2**15 - 1  # what stands for a state's bound
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True)
class Scan:
    """Sizes and variant of a recurrent layer."""

    kind: str
    steps: int
    batch: int
    units: int
    backwards: tuple[bool, ...]  # whether each direction is reversed
    lanes: int
    registers: int
    resets_late: bool = True  # a GRU resets its state after the product, not before
    functions: tuple[str, ...] = ()  # of gates, candidates and results, as ONNX orders them
    has_peepholes: bool = False  # an LSTM whose gates see the cell
    has_lengths: bool = False  # sequences end earlier: states stay, and results are zero
    byte_dot: Function | None = None  # adds products of bytes, for weights of 8 bits

    @property
    def gates(self) -> int:
        return GATES[self.kind]

    @property
    def vectors(self) -> int:
        """Number of vectors that the hidden units fill."""
        return -(-self.units // self.lanes)

    @property
    def rows(self) -> int:
        """Number of sequences computed together, which share reads of the weights."""
        return int(largest_factor(self.batch, int(OF_SUMS * self.registers) // self.gates))

    @property
    def wide(self) -> int:
        """Number of vectors of hidden units that are summed together."""
        return int(largest_factor(self.vectors, BUSY // (self.rows * self.gates)))

    @property
    def packed(self) -> tuple[int, ...]:
        """Shape in which one number per direction, gate and unit is packed for reading."""
        parts = self.vectors // self.wide
        return len(self.backwards), parts, self.wide * self.gates, self.lanes

    @property
    def quads(self) -> int:
        """Number of groups of four units, which an instruction multiplies at a time."""
        return -(-self.units // QUAD)

    def pack_bytes(self, values: Any) -> Any:
        """Pack weights [directions, gates * units, units] of 8 bits as [directions, parts,
        groups, sums, bytes]."""
        padding = QUAD * self.quads - self.units
        packed = self.pack(np.pad(values, ((0, 0), (0, 0), (0, padding))))
        groups = packed.reshape(self.quads, QUAD, *self.packed)  # axes 2 to 5: as `packed`
        return groups.transpose(2, 3, 0, 4, 5, 1).reshape(self.shapes["R"])

    def pack(self, values: Any) -> Any:
        """Pack an array [directions, gates * units, rest] as [rest, *packed]."""
        count, _, inner = values.shape
        padding = self.vectors * self.lanes - self.units
        gated = values.reshape(count, self.gates, self.units, inner)
        padded_values = np.pad(gated, [(0, 0), (0, 0), (0, padding), (0, 0)])
        parts = padded_values.reshape(count, self.gates, -1, self.wide, self.lanes, inner)
        return parts.transpose(5, 0, 2, 3, 1, 4).reshape(inner, *self.packed)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        count, parts, sums, lanes = self.packed
        state = count, self.batch, self.units
        shapes = {"X": (self.steps, self.batch, *self.packed), "R": (count, parts, self.units, sums, lanes)}
        if self.byte_dot:
            shapes["R"] = (count, parts, self.quads, sums, lanes * QUAD)
        shapes["H"] = state
        if self.kind == "LSTM":
            shapes["C"] = state
        if self.kind == "GRU":
            shapes["O"] = self.packed
        if self.has_peepholes:
            shapes["P"] = self.packed
        if self.has_lengths:
            shapes["L"] = (self.batch,)
        if self.byte_dot:  # scales of the weights, and what an upper byte of 128 adds
            shapes |= {"K": self.packed, "Z": self.packed}
        return shapes

    @property
    def results(self) -> dict[str, tuple[int, ...]]:
        state = len(self.backwards), self.batch, self.units
        last = {"HN": state, "CN": state} if self.kind == "LSTM" else {"HN": state}
        return {"Y": (self.steps, state[0], *state[1:]), **last}


def build_function(scan: Scan) -> Any:
    """Build the function of a layer, with a block per direction and group of sequences."""
    shapes = {**scan.shapes, **scan.results}
    dtypes = dict.fromkeys(shapes, "float32") | ({"R": "int8"} if scan.byte_dot else {})
    buffers = ", ".join(f'{name}: T.Buffer({shapes[name]}, "{dtypes[name]}")' for name in shapes)
    reads = ", ".join(_region(scan, name, shape) for name, shape in scan.shapes.items())
    writes = ", ".join(_region(scan, name, shape) for name, shape in scan.results.items())
    terms = scan.steps * scan.batch * scan.units * prod(scan.packed)
    work = instruction = ""
    if scan.byte_dot:  # TVM cannot count its vectors
        work = f', "{WORK}": {2 * terms}'
        instruction = f"T.attr(0, 'pragma_import_llvm', {scan.byte_dot.text!r})\n"
    return parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main({buffers}) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OPAQUE}}})
    for direction, group, once in T.grid({len(scan.backwards)}, {scan.batch // scan.rows}, 1):
        with T.sblock("scan"):
            vd, vn, v_once = T.axis.remap("SSS", [direction, group, once])
            T.reads({reads})
            T.writes({writes})
            T.sblock_attr({{"{OPERATOR}": "recurrent"{work}}})
{indent(instruction + format_layer_body(scan), " " * 12)}
""")


def _region(scan: Scan, name: str, shape: tuple[int, ...]) -> str:
    """Return the part of a buffer that a block accesses: its direction and sequences."""
    direction, rows = "vd", f"vn * {scan.rows}:vn * {scan.rows} + {scan.rows}"
    places = [f"0:{size}" for size in shape]
    match name:
        case "X":
            places[1:3] = [rows, direction]
        case "Y":
            places[1:3] = [direction, rows]
        case "R" | "O" | "P" | "K" | "Z":
            places[0] = direction
        case "L":
            places[0] = rows
        case _:
            places[:2] = [direction, rows]
    return f"{name}[{', '.join(places)}]"


# 1 / (1 + exp(-x)), with softmax's polynomial; scaled by two, a hyperbolic tangent.
_SQUASHED = """
for i in T.vectorized({lanes}):
    d: T.let = T.max(T.min({source} * T.float32(-{scale}), T.float32(88)), T.float32(-87.33654))
    n: T.let = T.floor(d * T.float32(1.44269502) + T.float32(0.5))
    f: T.let = d - n * T.float32(0.693147182)
    p: T.let = (T.float32(0.00019875691) * f + T.float32(0.0013981999)) * f + T.float32(0.00833345205)
    q: T.let = ((p * f + T.float32(0.0416657962)) * f + T.float32(0.166666657)) * f + T.float32(0.5)
    power: T.let = T.reinterpret("float32", T.shift_left(T.Cast("int32", n) + 127, 23))
    {target} = (q * f * f + f + T.float32(1)) * power
    {target} = T.float32({scale}) / (T.float32(1) + {target}) - T.float32({less})
"""
# Other activations of `x`, with one or two numbers.
ACTIVATIONS = {
    "relu": "T.max({x}, T.float32(0))",
    "leakyrelu": "T.max({x}, {x} * T.float32({alpha}))",
    "hardsigmoid": "T.max(T.min({x} * T.float32({alpha}) + T.float32({beta}), T.float32(1)), T.float32(0))",
    "softsign": "{x} / (T.float32(1) + T.abs({x}))",
}
SIGMOID, TANH = "sigmoid", "tanh"


def format_layer_body(scan: Any) -> str:
    """Return TVMScript for all steps; `h` is the state, `w` the next state."""
    states = ["h", "w", *(["c"] if scan.kind == "LSTM" else []), *([] if scan.resets_late else ["g"])]
    length = scan.rows * scan.vectors * scan.lanes
    buffers = [f"{name} = {_buffer(length)}" for name in states]
    names = [_sum_variable_name(m, q) for m in range(scan.rows) for q in range(scan.packed[2])]
    sums = [f"{name} = {_buffer(scan.lanes)}" for name in names]
    if scan.byte_dot:
        buffers += [f"{name} = {_buffer(length, 'uint8')}" for name in ("up", "low")]
        buffers += [f"most = {_buffer(1)}", *_format_bound(scan, length)]
        sums += [f"{name}{half} = {_buffer(scan.lanes, 'int32')}" for name in names for half in ("u", "v")]
    cells = {"H": "h", "C": "c"} if scan.kind == "LSTM" else {"H": "h"}
    unit, row = _format_unit_index(scan), _format_row_index(scan)
    first = [f"{cell}[{unit}] = {name}[vd, {row}, j]" for name, cell in cells.items()]
    last = [f"{name}N[vd, {row}, j] = {cell}[{unit}]" for name, cell in cells.items()]
    parts = f"for b in range({scan.packed[1]}):"
    copies = [
        f"h[{unit}] = {_unless_ended(scan, 'm', f'w[{unit}]', f'h[{unit}]')}",
        f"Y[{_format_step_index(scan)}, {row}, j] = {_unless_ended(scan, 'm', f'w[{unit}]', 'T.float32(0)')}",
    ]
    if scan.kind == "GRU":
        passes = [_format_gru_reset_after(scan)] if scan.resets_late else _format_gru_reset_before(scan)
    else:
        passes = [_lstm(scan) if scan.kind == "LSTM" else _rnn(scan)]
    lines = [*(_indented(parts, lines) for lines in passes), _format_unit_loop(scan, copies)]
    if scan.byte_dot:
        lines.insert(0, _format_halving(scan))
    step = _indented(f"for s in range({scan.steps}):", lines)
    return "\n".join([*buffers, *sums, _format_unit_loop(scan, first), step, _format_unit_loop(scan, last)])


def _lstm(scan: Any) -> list[str]:
    """Return the lines of an LSTM step; gates are in ONNX's order: input, output, forget, cell."""
    lines = _sums(scan, "h", range(4))
    for index, ((i, o, f, g), j, _) in enumerate(_list_unit_vectors(scan)):
        cell = f"{f}[i] * c[{j}] + {i}[i] * {g}[i]"
        vector = index % scan.wide * scan.gates
        if scan.has_peepholes:  # gates see the cell: the output gate its next state
            lines += [_look_at_cell(scan, gate, vector + place, j) for place, gate in ((0, i), (2, f))]
        early = (i, f) if scan.has_peepholes else (i, o, f)
        lines += [_activate(scan, gate, 0) for gate in early]
        lines += [_activate(scan, g, 1)]
        lines += [_vector(scan, f"c[{j}] = {_unless_ended(scan, index // scan.wide, cell, f'c[{j}]')}")]
        if scan.has_peepholes:
            lines += [_look_at_cell(scan, o, vector + 1, j), _activate(scan, o, 0)]
        lines += [
            _format_activation(scan, f"c[{j}]", f"w[{j}]", 2),
            _vector(scan, f"w[{j}] = {o}[i] * w[{j}]"),
        ]
    return lines


def _look_at_cell(scan: Any, gate: str, number: int, cell: str) -> str:
    return _vector(scan, f"{gate}[i] = {gate}[i] + P[vd, b, {number}, i] * c[{cell}]")


def _format_gru_reset_after(scan: Any) -> list[str]:
    """Return the lines of a GRU step that resets the state after its product."""
    lines = _sums(scan, "h", range(3))
    for (z, r, n), j, own in _list_unit_vectors(scan):
        lines += [_activate(scan, gate, 0) for gate in (z, r)]
        lines += [_vector(scan, f"{n}[i] = {own} + {r}[i] * {n}[i]"), _activate(scan, n, 1)]
        lines += [_vector(scan, f"w[{j}] = {n}[i] + {z}[i] * (h[{j}] - {n}[i])")]
    return lines


def _format_gru_reset_before(scan: Any) -> list[list[str]]:
    """Return two lists of lines of a GRU step that resets the state before its product."""
    gates, last = _sums(scan, "h", range(2)), _sums(scan, "g", [2])
    for (z, r, n), j, _ in _list_unit_vectors(scan):
        gates += [_format_activation(scan, f"{z}[i]", f"w[{j}]", 0), _activate(scan, r, 0)]
        gates += [_vector(scan, f"g[{j}] = {r}[i] * h[{j}]")]
        last += [_activate(scan, n, 1), _vector(scan, f"w[{j}] = {n}[i] + w[{j}] * (h[{j}] - {n}[i])")]
    return [gates, last]


def _rnn(scan: Any) -> list[str]:
    lines = _sums(scan, "h", [0])
    for (a,), j, _ in _list_unit_vectors(scan):
        lines.append(_format_activation(scan, f"{a}[i]", f"w[{j}]", 0))
    return lines


def _sums(scan: Any, state: str, gates: Iterable[int]) -> list[str]:
    """Return lines that sum, for some gates, inputs' shares and state times weights."""
    if scan.byte_dot:
        return _format_byte_sums(scan)
    gate_set = set(gates)
    pairs = [(m, q) for m in range(scan.rows) for q in range(scan.packed[2]) if q % scan.gates in gate_set]
    length = scan.vectors * scan.lanes
    starts = []
    for m, q in pairs:
        # A GRU that resets late adds inputs to the hidden gate later.
        is_late_gate = scan.kind == "GRU" and scan.resets_late and q % scan.gates == 2
        value = f"O[vd, b, {q}, i]" if is_late_gate else _input(scan, m, q)
        starts.append(_vector(scan, f"{_sum_variable_name(m, q)}[i] = {value}"))
    terms = [f"{state}[{m * length} + k] * R[vd, b, k, {q}, i]" for m, q in pairs]
    additions = [
        _vector(scan, f"{_sum_variable_name(m, q)}[i] = {_sum_variable_name(m, q)}[i] + {term}")
        for (m, q), term in zip(pairs, terms, strict=True)
    ]
    return [*starts, _indented(f"for k in range({scan.units}):", additions)]


def _format_bound(scan: Any, length: int) -> list[str]:
    """Return lines that find a bound of all states: the first ones may exceed 1."""
    clear = [f"{name}[j] = T.uint8(0)" for name in ("up", "low")]
    state = f"T.abs(H[vd, {_format_row_index(scan)}, j])"
    return [
        _indented(f"for j in range({length}):", clear),
        "most[0] = T.float32(1)",
        _format_unit_loop(scan, [f"most[0] = T.max(most[0], {state})"]),
    ]


def _format_halving(scan: Any) -> str:
    """Return lines that round the state to 16 bits; 128 is added to the upper byte."""
    unit = _format_unit_index(scan)
    number = f"T.floor(h[{unit}] * (T.float32({LARGEST_HALF}) / most[0]) + T.float32(0.5))"
    lines = [
        f'up[{unit}] = T.Cast("uint8", T.shift_right(T.Cast("int32", {number}), 8) + 128)',
        f'low[{unit}] = T.Cast("uint8", T.bitwise_and(T.Cast("int32", {number}), 255))',
    ]
    return _format_unit_loop(scan, lines)


def _format_byte_sums(scan: Any) -> list[str]:
    """Return lines that sum input contributions and products of the state's bytes."""
    pairs = [(m, q) for m in range(scan.rows) for q in range(scan.packed[2])]
    length, vector = scan.vectors * scan.lanes, f"int32x{scan.lanes}"
    starts, additions, ends = [], [], []
    for m, q in pairs:
        total = _sum_variable_name(m, q)
        weights = f'R.vload([vd, b, k, {q}, 0], "int8x{scan.lanes * QUAD}")'
        weights = f'T.reinterpret("{vector}", {weights})'
        for half, state in (("u", "up"), ("v", "low")):
            quad = f'{state}.vload([{m * length} + k * {QUAD}], "uint8x{QUAD}")'
            sums = f'{total}{half}.vload([0], "{vector}")'
            states = f'T.broadcast(T.reinterpret("int32", {quad}), {scan.lanes})'
            arguments = f"{sums}, {states}, {weights}"
            call = f'T.call_pure_extern("{vector}", "{scan.byte_dot.name}", {arguments})'
            starts.append(_vector(scan, f"{total}{half}[i] = 0"))
            additions.append(f"{total}{half}[T.ramp(0, 1, {scan.lanes})] = {call}")
        upper, lower = (f'T.Cast("float32", {total}{half}[i])' for half in ("u", "v"))
        scale = f"(K[vd, b, {q}, i] * (most[0] / T.float32({LARGEST_HALF})))"
        product = f"(({upper} - Z[vd, b, {q}, i]) * T.float32(256) + {lower}) * {scale}"
        ends.append(_vector(scan, f"{total}[i] = {_input(scan, m, q)} + {product}"))
    return [*starts, _indented(f"for k in range({scan.quads}):", additions), *ends]


def _input(scan: Any, row: int, number: int) -> str:
    return f"X[{_format_step_index(scan).removesuffix(', vd')}, vn * {scan.rows} + {row}, vd, b, {number}, i]"


def _format_step_index(scan: Any) -> str:
    """Return the index of the step in the sequence, and the direction."""
    back = f"{scan.steps - 1} - s"
    match scan.backwards:
        case (False,):
            return "s, vd"
        case (True,):
            return f"{back}, vd"
    return f"T.if_then_else(vd == 0, s, {back}), vd"


def _unless_ended(scan: Any, row: int | str, value: str, otherwise: str) -> str:
    """Return an expression: `value` at steps of a row's sequence, `otherwise` after its end."""
    if not scan.has_lengths:
        return value
    step = _format_step_index(scan).removesuffix(", vd")
    return f'T.Select(T.Cast("float32", {step}) < L[vn * {scan.rows} + {row}], {value}, {otherwise})'


def _list_unit_vectors(scan: Any) -> list[tuple[list[str], str, str]]:
    """List per vector of units: its gates' sums, its state index, its last gate's input."""
    length, cells = scan.vectors * scan.lanes, []
    for row in range(scan.rows):
        for vector in range(scan.wide):
            sums = [vector * scan.gates + gate for gate in range(scan.gates)]
            place = f"{row * length} + (b * {scan.wide} + {vector}) * {scan.lanes} + i"
            cells.append(
                ([_sum_variable_name(row, number) for number in sums], place, _input(scan, row, sums[-1]))
            )
    return cells


def _activate(scan: Any, gate: str, position: int) -> str:
    return _format_activation(scan, f"{gate}[i]", f"{gate}[i]", position)


def _format_activation(scan: Any, source: str, target: str, position: int) -> str:
    """Return lines that apply the layer's activation at a position of its `functions`."""
    function = scan.functions[position]
    if function not in (SIGMOID, TANH):
        return _vector(scan, f"{target} = {function.replace('{x}', source)}")
    scale = 1 if function == SIGMOID else 2
    return _SQUASHED.format(
        lanes=scan.lanes, source=source, target=target, scale=scale, less=scale - 1
    ).strip()


def _vector(scan: Any, line: str) -> str:
    return _indented(f"for i in T.vectorized({scan.lanes}):", [line])


def _format_unit_loop(scan: Any, lines: list[str]) -> str:
    return _indented(f"for m, j in T.grid({scan.rows}, {scan.units}):", lines)


def _format_unit_index(scan: Any) -> str:
    return f"m * {scan.vectors * scan.lanes} + j"


def _format_row_index(scan: Any) -> str:
    return f"vn * {scan.rows} + m"


def _sum_variable_name(row: int, number: int) -> str:
    return f"a{row}_{number}"


def _buffer(length: int, dtype: str = "float32") -> str:
    return f'T.sblock_alloc_buffer(({length},), "{dtype}")'


def _indented(head: str, lines: Iterable[str]) -> str:
    return "\n".join([head, *(indent(line, "    ") for line in lines)])
