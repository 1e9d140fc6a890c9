"""What a tensor program is called with: shapes, outputs, and integers that never read out of bounds."""

from typing import Any

from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from graphc.core.graph_rewriting import collect
from workers.interfaces.tensor_arguments import FREE_RANGE, Arguments, Range, Tensor
from workers.tvm.program_blocks import ProgramBlock, blocks_of


def arguments(mod: Any) -> Arguments:
    """What to call a module with."""
    params = [hash(param) for param in mod["main"].params]
    infos = tensor_args(mod)
    blocks = blocks_of(mod)
    # What they say of themselves: a block may store into a part of a buffer under another name.
    written = {hash(region.source) for block in collect(mod["main"], SBlock) for region in block.writes}
    bounds = index_bounds(blocks)
    # A byte that looks up one of two values takes the first: the range of both would mean that it is free.
    named = zip(params, infos, strict=True)
    one_of_two = {param for param, (_, dtype, _) in named if dtype in ("int8", "uint8")}
    bounds |= {param: (0, 1) for param in one_of_two if bounds.get(param) == FREE_RANGE}
    ranges = {
        str(i): bounds.get(param, FREE_RANGE)
        for i, (param, (_, dtype, _)) in enumerate(zip(params, infos, strict=True))
        if dtype.startswith(("int", "uint", "bool")) and param not in written
    }
    outputs = tuple(i for i, param in enumerate(params) if param in written)
    return Arguments(infos, outputs, ranges)


def tensor_args(mod: Any) -> tuple[Tensor, ...]:
    """What a module's entry takes."""
    infos = [info.as_json() for info in ArgInfo.from_entry_func(mod)]
    return tuple(
        Tensor(str(kind), str(dtype), tuple(int(size) for size in shape)) for kind, dtype, shape in infos
    )


def index_bounds(blocks: list[ProgramBlock]) -> dict[int, Range]:
    """For each buffer whose values index another one, the range that stays inside."""
    bounds: dict[int, Range] = {}
    for load in (load for block in blocks for load in block.loads):
        for index, size in zip(load.indices, load.source.shape, strict=True):
            for inner in collect(index, TensorLoad):
                for source in _sources(hash(inner.source), blocks):
                    high = min(int(size), bounds.get(source, (0, int(size)))[1])
                    bounds[source] = (0, high)
    return bounds


def _sources(buffer: int, blocks: list[ProgramBlock]) -> set[int]:
    """The buffer and all it is computed from inside the program."""
    found, pending = set(), {buffer}
    while pending:
        name = pending.pop()
        found.add(name)
        makers = [block for block in blocks if any(hash(store.buffer) == name for store in block.stores)]
        pending |= {hash(load.source) for block in makers for load in block.loads} - found
    return found
