"""Which elements a program's blocks touch, as the constructor of schedules reads them."""

from collections.abc import Iterable, Mapping, Set
from functools import lru_cache
from typing import Any

from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import Add, IntImm, Mul, Ramp, Sub, Var
from tvm_ffi import structural_map

from mallorn.core.values.machine import element_bytes
from searchers.loop_nest import Access, Axis, Index, Nest
from workers.tvm.parsed_program_cache import parse_module
from workers.tvm.program_blocks import ProgramBlock, blocks_of, extent

RELAID = "layout_free_buffers"


@lru_cache(maxsize=64)
def nests(tir: str) -> list[Nest]:
    """The program's blocks that store one value a point, in program order."""
    function = parse_module(tir)["main"]
    params = [hash(param) for param in function.params]
    free = (function.attrs or {}).get(RELAID, ())
    blocks = blocks_of(parse_module(tir))
    made = {hash(store.buffer) for block in blocks for store in block.stores}
    relaid = {params[int(at)] for at in free}
    return [_nest(block, relaid, made) for block in blocks if len(block.stores) == 1]


def place(buffer: Any, indices: Iterable[Any], values: Mapping[int, int]) -> int:
    """Where an element lies, row by row, at such values of variables, by identity; others are zero."""
    rules = [
        (TensorLoad, lambda load: IntImm(str(load.ty.dtype), 0)),
        (Ramp, lambda _: IntImm("int64", 0)),
        (Var, lambda var: IntImm(str(var.ty.dtype), values.get(hash(var), 0))),
    ]
    found = 0
    for index, size in zip(indices, buffer.shape, strict=True):
        found = found * int(size) + int(Analyzer().simplify(structural_map(index, rules)))
    return found


def _nest(block: ProgramBlock, relaid: Set[int], made: Set[int]) -> Nest:
    iters = (*block.spatial, *block.reduced)
    places = {hash(axis.var): at for at, axis in enumerate(iters)}
    axes = tuple(Axis(extent(axis), at >= len(block.spatial)) for at, axis in enumerate(iters))
    (store,) = block.stores
    loads = [
        _access(load.source, load.indices, places, relaid, made)
        for load in block.loads
        if hash(load.source) != hash(store.buffer)
    ]
    return Nest(axes, tuple(dict.fromkeys(loads)), _access(store.buffer, store.indices, places))


def _access(
    buffer: Any,
    indices: Any,
    places: dict[int, int],
    relaid: Set[int] = frozenset(),
    made: Set[int] = frozenset(),
) -> Access:
    shape = tuple(int(size) for size in buffer.shape)
    index = tuple(_coefficients(expression, places) for expression in indices)
    name = hash(buffer)
    return Access(shape, index, element_bytes(str(buffer.dtype)), name in relaid, name in made)


def _coefficients(expression: Any, places: dict[int, int]) -> Index:
    """The axes in an index. One that is not a sum of products is taken for its variables' sum."""
    found: dict[int, int] = {}

    def walk(node: Any, factor: int) -> None:
        match node:
            case Var():
                if hash(node) in places:
                    found[places[hash(node)]] = found.get(places[hash(node)], 0) + factor
            case Add() | Sub():
                walk(node.a, factor)
                walk(node.b, factor)
            case Mul():
                side, other = (node.a, node.b) if isinstance(node.b, IntImm) else (node.b, node.a)
                walk(side, factor * (int(other) if isinstance(other, IntImm) else 1))
            case TensorLoad():
                pass  # what a value points at lies anywhere
            case _:
                for name in ("a", "b", "value"):
                    if (child := getattr(node, name, None)) is not None and not isinstance(child, int):
                        walk(child, factor)

    walk(expression, 1)
    return tuple(sorted((axis, abs(factor)) for axis, factor in found.items() if factor))
