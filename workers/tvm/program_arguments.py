"""Find a tensor program's arguments: shapes, outputs, and ranges of index values."""

from typing import Any

from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.workers.interfaces.tensor_arguments import FREE_RANGE, Arguments, Range, Tensor
from mallorn.workers.tvm.program_blocks import ProgramBlock, blocks_of


def arguments(mod: Any) -> Arguments:
    """Return a program's tensors, the indices of outputs, and ranges of integer inputs."""
    params = [hash(param) for param in mod["main"].params]
    infos = tensor_args(mod)
    blocks = blocks_of(mod)
    # Declared writes, since a block may store through an alias of a part of a buffer.
    written_buffers = {hash(w.source) for block in collect_nodes(mod["main"], SBlock) for w in block.writes}
    bounds = index_bounds(blocks)
    # A byte that looks up one of two values takes only the first: (0, 2) means FREE_RANGE.
    pairs = zip(params, infos, strict=True)
    byte_params = {param for param, (_, dtype, _) in pairs if dtype in ("int8", "uint8")}
    bounds |= {param: (0, 1) for param in byte_params if bounds.get(param) == FREE_RANGE}
    ranges = {
        str(i): bounds.get(param, FREE_RANGE)
        for i, (param, (_, dtype, _)) in enumerate(zip(params, infos, strict=True))
        if dtype.startswith(("int", "uint", "bool")) and param not in written_buffers
    }
    outputs = tuple(i for i, param in enumerate(params) if param in written_buffers)
    return Arguments(infos, outputs, ranges)


def tensor_args(mod: Any) -> tuple[Tensor, ...]:
    """Return the tensors that a module's entry function takes."""
    infos = [info.as_json() for info in ArgInfo.from_entry_func(mod)]
    return tuple(Tensor(str(kind), str(dtype), tuple(map(int, shape))) for kind, dtype, shape in infos)


def index_bounds(blocks: list[ProgramBlock]) -> dict[int, Range]:
    """Return the range of values of each buffer whose values index other buffers, so that
    the indices stay in bounds. Keys are hashes of buffers."""
    bounds: dict[int, Range] = {}
    for load in (load for block in blocks for load in block.loads):
        for index, size in zip(load.indices, load.source.shape, strict=True):
            for inner in collect_nodes(index, TensorLoad):
                for source in _with_sources(hash(inner.source), blocks):
                    bounds[source] = (0, min(int(size), bounds.get(source, (0, int(size)))[1]))
    return bounds


def _with_sources(buffer: int, blocks: list[ProgramBlock]) -> set[int]:
    """Return the hashes of a buffer and of all buffers from which it is computed."""
    sources, pending = set(), {buffer}
    while pending:
        name = pending.pop()
        sources.add(name)
        makers = [block for block in blocks if any(hash(store.buffer) == name for store in block.stores)]
        pending |= {hash(load.source) for block in makers for load in block.loads} - sources
    return sources
