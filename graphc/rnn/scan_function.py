"""Recurrent layers as tensor functions: a block steps through a whole sequence, its state in the caches.

What the inputs contribute is a product of all steps, made before. Weights of the state are packed, so that a
step reads them once from beginning to end: some vectors of hidden units at a time, all their gates together.
"""

from dataclasses import dataclass
from textwrap import indent
from typing import Any

import numpy as np

from graphc.core.graph_rewriting import OPAQUE, OPERATOR, largest_factor, parsed
from graphc.rnn import cell_body

# Vectors that are summed side by side: enough to hide what an addition waits; what fits in registers.
BUSY, REGISTERS = 8, {16: 24}
FEWER = 12
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True)
class Scan:
    """A recurrent layer's sizes."""

    kind: str
    steps: int
    batch: int
    hidden: int
    backwards: tuple[bool, ...]  # of each direction
    lanes: int
    late: bool = True  # a GRU resets its state behind the product, not before
    rectified: bool = False  # an RNN without a hyperbolic tangent

    @property
    def gates(self) -> int:
        return GATES[self.kind]

    @property
    def vectors(self) -> int:
        """Of hidden units."""
        return -(-self.hidden // self.lanes)

    @property
    def rows(self) -> int:
        """Sequences that share what is read of the weights."""
        return int(largest_factor(self.batch, REGISTERS.get(self.lanes, FEWER) // self.gates))

    @property
    def wide(self) -> int:
        """Vectors of hidden units that are summed together."""
        return int(largest_factor(self.vectors, BUSY // (self.rows * self.gates)))

    @property
    def packed(self) -> tuple[int, ...]:
        """A number for each gate of each hidden unit."""
        parts = self.vectors // self.wide
        return len(self.backwards), parts, self.wide * self.gates, self.lanes

    def pack(self, values: Any) -> Any:
        """Numbers of directions x (gates x hidden) x rest as rest x directions x packed."""
        count, _, rest = values.shape
        missing = self.vectors * self.lanes - self.hidden
        gated = values.reshape(count, self.gates, self.hidden, rest)
        filled = np.pad(gated, [(0, 0), (0, 0), (0, missing), (0, 0)])
        parts = filled.reshape(count, self.gates, -1, self.wide, self.lanes, rest)
        return parts.transpose(5, 0, 2, 3, 1, 4).reshape(rest, *self.packed)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of what the function takes, then of what it gives."""
        count, parts, sums, lanes = self.packed
        state = count, self.batch, self.hidden
        shapes = {"X": (self.steps, self.batch, *self.packed), "R": (count, parts, self.hidden, sums, lanes)}
        shapes["H"] = state
        if self.kind == "LSTM":
            shapes["C"] = state
        if self.kind == "GRU":
            shapes["O"] = self.packed
        return shapes

    @property
    def results(self) -> dict[str, tuple[int, ...]]:
        state = len(self.backwards), self.batch, self.hidden
        last = {"HN": state, "CN": state} if self.kind == "LSTM" else {"HN": state}
        return {"Y": (self.steps, state[0], *state[1:]), **last}


def function(scan: Scan) -> Any:
    """The tensor function of a layer; directions and sequences are blocks of their own."""
    shapes = {**scan.shapes, **scan.results}
    buffers = ", ".join(f'{name}: T.Buffer({shape}, "float32")' for name, shape in shapes.items())
    reads = ", ".join(_region(scan, name, shape) for name, shape in scan.shapes.items())
    writes = ", ".join(_region(scan, name, shape) for name, shape in scan.results.items())
    return parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main({buffers}) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OPAQUE}}})
    for direction, group, once in T.grid({len(scan.backwards)}, {scan.batch // scan.rows}, 1):
        with T.sblock("scan"):
            vd, vn, v_once = T.axis.remap("SSS", [direction, group, once])
            T.reads({reads})
            T.writes({writes})
            T.sblock_attr({{"{OPERATOR}": "recurrent"}})
{indent(cell_body.body(scan), " " * 12)}
""")


def _region(scan: Scan, name: str, shape: tuple[int, ...]) -> str:
    """What a block touches: its direction, its sequences and all else."""
    direction, rows = "vd", f"vn * {scan.rows}:vn * {scan.rows} + {scan.rows}"
    places = [f"0:{size}" for size in shape]
    match name:
        case "X":
            places[1:3] = [rows, direction]
        case "Y":
            places[1:3] = [direction, rows]
        case "R" | "O":
            places[0] = direction
        case _:
            places[:2] = [direction, rows]
    return f"{name}[{', '.join(places)}]"
