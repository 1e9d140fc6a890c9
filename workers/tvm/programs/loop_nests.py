"""Describe a program's loops and memory accesses for Roller, which constructs tilings."""

from collections.abc import Iterable, Mapping, Set
from functools import lru_cache
from typing import Any

from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import Add, IntImm, Mul, Ramp, Sub, Var
from tvm_ffi import structural_map

from mallorn.core.values.machine import element_bytes
from mallorn.searchers.loop_nest import Access, Axis, Index, Nest
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module
from mallorn.workers.tvm.programs.program_blocks import blocks_of, extent

RELAID = "layout_free_buffers"


@lru_cache(maxsize=64)
def nests(tir: str) -> list[Nest]:
    """Return the loops and memory accesses of each block that has exactly one store."""
    function = parse_module(tir)["main"]
    params = [hash(param) for param in function.params]
    free = (function.attrs or {}).get(RELAID, ())
    blocks = blocks_of(parse_module(tir))
    intermediate = {hash(store.buffer) for block in blocks for store in block.stores}
    relaid = {params[int(index)] for index in free}
    result = []
    for block in blocks:
        if len(block.stores) != 1:
            continue
        (store,) = block.stores
        iters = (*block.spatial, *block.reduced)
        axis_numbers = {hash(axis.var): index for index, axis in enumerate(iters)}
        axes = tuple(Axis(extent(axis), index >= len(block.spatial)) for index, axis in enumerate(iters))
        loads = [
            _access(load.source, load.indices, axis_numbers, relaid, intermediate)
            for load in block.loads
            if hash(load.source) != hash(store.buffer)
        ]
        output = _access(store.buffer, store.indices, axis_numbers)
        result.append(Nest(axes, tuple(dict.fromkeys(loads)), output))
    return result


def row_major_offset(buffer: Any, indices: Iterable[Any], values: Mapping[int, int]) -> int:
    """Return an element's row-major offset, given variables' values by hash (default 0)."""
    rules = [
        (TensorLoad, lambda load: IntImm(str(load.ty.dtype), 0)),
        (Ramp, lambda _: IntImm("int64", 0)),
        (Var, lambda var: IntImm(str(var.ty.dtype), values.get(hash(var), 0))),
    ]
    offset = 0
    for index, size in zip(indices, buffer.shape, strict=True):
        offset = offset * int(size) + int(Analyzer().simplify(structural_map(index, rules)))
    return offset


def _access(
    buffer: Any,
    indices: Any,
    axis_numbers: dict[int, int],
    relaid: Set[int] = frozenset(),
    intermediate: Set[int] = frozenset(),
) -> Access:
    shape = tuple(int(size) for size in buffer.shape)
    index = tuple(_coefficients(expression, axis_numbers) for expression in indices)
    name = hash(buffer)
    return Access(shape, index, element_bytes(str(buffer.dtype)), name in relaid, name in intermediate)


def _coefficients(expression: Any, axis_numbers: dict[int, int]) -> Index:
    """Return each axis's factor in an index; an unknown operator counts as an addition."""
    factors: dict[int, int] = {}

    def walk(node: Any, factor: int) -> None:
        match node:
            case Var():
                if hash(node) in axis_numbers:
                    factors[axis_numbers[hash(node)]] = factors.get(axis_numbers[hash(node)], 0) + factor
            case Add() | Sub():
                walk(node.a, factor)
                walk(node.b, factor)
            case Mul():
                side, multiplier = (node.a, node.b) if isinstance(node.b, IntImm) else (node.b, node.a)
                walk(side, factor * (int(multiplier) if isinstance(multiplier, IntImm) else 1))
            case TensorLoad():
                pass  # an index read from memory may point anywhere
            case _:
                for name in ("a", "b", "value"):
                    if (child := getattr(node, name, None)) is not None and not isinstance(child, int):
                        walk(child, factor)

    walk(expression, 1)
    return tuple(sorted((axis, abs(factor)) for axis, factor in factors.items() if factor))
