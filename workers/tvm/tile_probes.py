"""Probes of AMX tile products on all cores, with as many sums as fit in the registers."""

from typing import Any, Final

from tvm.target.codegen import target_has_features

from graphc.quant.tile_instructions import ALLOWED, BY_TYPE, BYTES, COLUMNS, FACTORS, ROWS, TileInstruction
from workers.interfaces.hardware_probes import Finds, Probe
from workers.interfaces.tensor_arguments import Arguments, Tensor

DEPTH: Final = 16  # multiplied tiles of data and of weights; they stay in the L1 cache
TURNS: Final = 64
_ONES: Final = {"int8": 0x01010101, "bfloat16": 0x3F803F80}


def tile_instructions(target: Any) -> list[TileInstruction]:
    """Return the tile instructions that a target has."""
    return [each for each in BY_TYPE.values() if target_has_features(each.feature, target)]


def probe_tiles(by: TileInstruction, cores: int) -> tuple[Probe, str]:
    """Return the probe of a tile instruction, and its function as TVMScript."""
    dtype, row = by.numbers.weights, DEPTH * BYTES // 4
    shapes = (cores, FACTORS * ROWS, FACTORS * COLUMNS), (FACTORS * ROWS, row), (FACTORS, row, COLUMNS)
    text = f"""HEAD(sums: T.Buffer({shapes[0]}, "{by.numbers.sums}"), left: T.Buffer({shapes[1]}, "int32"),
         right: T.Buffer({shapes[2]}, "int32")) -> None:
ATTRS
    for core in T.parallel({cores}):
        T.attr(0, "pragma_import_llvm", {by.text!r})
        T.evaluate(T.call_extern("int32", "{ALLOWED}"))
        for turn in range({TURNS}):
            T.evaluate(T.call_extern(
                "void", "{by.function}", T.address_of(left[0, 0]), T.address_of(left[{ROWS}, 0]),
                T.int64({row * 4}), T.int64(0), T.int64(1), T.int64({DEPTH}), T.int64({BYTES}),
                T.address_of(right[0, 0, 0]), T.address_of(right[1, 0, 0]),
                T.address_of(sums[core, 0, 0]), T.address_of(sums[core, {ROWS}, 0]),
                T.int64({FACTORS * COLUMNS * 4}), T.int32({ROWS}), T.int32({ROWS}),
            ))
"""
    kinds = by.numbers.sums, "int32", "int32"
    tensors = (Tensor("TENSOR", kind, shape) for kind, shape in zip(kinds, shapes, strict=True))
    args = Arguments(tuple(tensors), ranges=dict.fromkeys("12", (_ONES[dtype], _ONES[dtype] + 1)))
    work = 2.0 * cores * TURNS * FACTORS * ROWS * FACTORS * COLUMNS * row * by.numbers.terms
    name = f"{dtype}_tiles"
    return Probe(Finds.PEAK, name, f"{name}.so", args, cores, dtype, work=work), text
