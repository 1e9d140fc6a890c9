"""Find out what a tensor program computes from its blocks, not from the importer's names,
and its arguments: shapes, outputs, and ranges of index values.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm.ir import Call, Op, TensorLoad
from tvm.s_tir import SBlock
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.tirx import Add, BufferStore, Cast, For, IntImm, IterVar, Mul, Var

from mallorn.graphc.core.graph_rewriting import OPERATOR, TERMS, collect_nodes
from mallorn.graphc.quant.tf32_products import before_rounding
from mallorn.workers.interfaces.tensor_arguments import FREE_RANGE, Arguments, Range, Tensor

Names = frozenset[int]
_ROOTS = frozenset({"tirx.sqrt", "tirx.rsqrt"})


@dataclass(frozen=True, slots=True)
class ProgramBlock:
    """A block of a program: its iteration variables, stores, loads and called operators."""

    spatial: tuple[Any, ...]
    reduced: tuple[Any, ...]
    stores: tuple[Any, ...]
    loads: tuple[Any, ...]
    calls: frozenset[str]
    loops: bool  # has inner loops, so it computes a row or a tile at a time
    operator: str  # annotation of the pass that made the block; empty if there is none
    terms: int  # number of terms of its sums

    @property
    def extents(self) -> list[int]:
        return [extent(axis) for axis in (*self.spatial, *self.reduced)]

    @property
    def factors(self) -> tuple[Any, Any] | None:
        """The two loads whose products the block sums up; None for other blocks."""
        for store in self.stores if self.reduced else ():
            term = _without_casts(store.value.b) if isinstance(store.value, Add) else None
            if isinstance(term, Mul) and all(
                isinstance(_without_casts(side), TensorLoad) for side in (term.a, term.b)
            ):
                return _without_casts(term.a), _without_casts(term.b)
        return None


def blocks_of(mod: Any) -> list[ProgramBlock]:
    """Return the blocks that have iteration variables, in program order."""
    blocks = []
    for block in collect_nodes(mod["main"], SBlock):
        axes = list(block.iter_vars)
        if not axes:
            continue
        reduction_axes = [axis for axis in axes if axis.iter_type == IterVar.CommReduce]
        calls = (str(call.op.name) for call in collect_nodes(block.body, Call) if isinstance(call.op, Op))
        terms = int(block.annotations.get(TERMS, 1)) * prod(map(extent, reduction_axes))
        blocks.append(
            ProgramBlock(
                spatial=tuple(axis for axis in axes if axis.iter_type == IterVar.DataPar),
                reduced=tuple(reduction_axes),
                stores=tuple(collect_nodes(block.body, BufferStore)),
                loads=tuple(collect_nodes(block.body, TensorLoad)),
                calls=frozenset(calls),
                loops=bool(collect_nodes(block.body, For)),
                operator=str(block.annotations.get(OPERATOR, "")),
                terms=terms,
            )
        )
    return blocks


def find_main_block(blocks: list[ProgramBlock]) -> ProgramBlock:
    """Return the main block: one that sums products, else one with a reduction, else one
    that an operator's name annotates. The largest of several counts."""
    return max(
        blocks, key=lambda b: (b.factors is not None, bool(b.reduced), bool(b.operator), prod(b.extents))
    )


def operator_of(blocks: list[ProgramBlock]) -> str:
    """Return the operator that a program computes, such as `conv2d`, by its structure."""
    anchor = find_main_block(blocks)
    products = [_classify_product(block, *block.factors) for block in blocks if block.factors is not None]
    if len(products) > 1:
        return anchor.operator or "-".join(products)
    if anchor.factors is not None:
        return _classify_product(anchor, *anchor.factors)
    if anchor.operator:
        return anchor.operator
    if not anchor.reduced:
        if not anchor.loops:
            return _classify_pointwise(blocks)
        # A block of our graph passes, which computes a row or a tile at a time.
        if _classify_pointwise([anchor]) == "layout":
            return "layout"
        return "layer_norm" if anchor.calls & _ROOTS else "softmax"
    if _find_sliding_axes(anchor, frozenset()):
        return "pool"
    if any(block.calls & _ROOTS for block in blocks):
        return "layer_norm"
    return "softmax" if sum(bool(block.reduced) for block in blocks) > 1 else "reduce"


def extent(axis: Any) -> int:
    """Return how many values an iteration variable has."""
    return int(axis.dom.extent)


def variables(*expressions: Any) -> Names:
    return frozenset(hash(var) for expression in expressions for var in collect_nodes(expression, Var))


def _classify_product(block: ProgramBlock, left: Any, right: Any) -> str:
    in_both_factors = variables(*left.indices) & variables(*right.indices)
    batch = frozenset(hash(axis.var) for axis in block.spatial if extent(axis) > 1) & in_both_factors
    sliding = _find_sliding_axes(block, batch)
    if not sliding:
        return "batch_matmul" if batch else "matmul"
    if not batch:
        return f"conv{len(sliding)}d"
    channels = prod(extent(axis) for axis in block.reduced if hash(axis.var) not in sliding)
    return f"{'depthwise' if channels == 1 else 'group'}_conv{len(sliding)}d"


def _find_sliding_axes(block: ProgramBlock, batch: Names) -> Names:
    """Return the reduction axes of sliding windows, which index a load together with a
    spatial axis outside `batch`."""
    spatial = frozenset(hash(axis.var) for axis in block.spatial) - batch
    reduction = frozenset(hash(axis.var) for axis in block.reduced)
    index_vars = [variables(index) for load in block.loads for index in load.indices]
    return frozenset().union(*(names & reduction for names in index_vars if names & spatial))


def _classify_pointwise(blocks: list[ProgramBlock]) -> str:
    loads = [load for block in blocks for load in block.loads]
    if any(collect_nodes(index, TensorLoad) for load in loads for index in load.indices):
        return "gather"
    values = (_without_casts(store.value) for block in blocks for store in block.stores)
    return "layout" if all(isinstance(value, TensorLoad | IntImm) for value in values) else "elementwise"


def _without_casts(value: Any) -> Any:
    return _without_casts(value.value) if isinstance(value, Cast) else before_rounding(value)


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
                # The buffer, and all those from which its values are computed.
                sources, pending = set[int](), {hash(inner.source)}
                while pending:
                    name = pending.pop()
                    sources.add(name)
                    bounds[name] = (0, min(int(size), bounds.get(name, (0, int(size)))[1]))
                    for block in blocks:
                        if any(hash(store.buffer) == name for store in block.stores):
                            pending |= {hash(source.source) for source in block.loads} - sources
    return bounds
