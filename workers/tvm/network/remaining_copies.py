"""Find the calls in a network that only move data, and the operators that require them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, Final

import tvm
from tvm import relax
from tvm.ir import Call, TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, Cast, For, Select, Var

from mallorn.core.values.graph_report import RemainingCopy
from mallorn.graphc.core.graph_rewriting import collect_nodes, has_static_tir_shapes
from mallorn.workers.tvm.network.run_recipe_passes import callee
from mallorn.workers.tvm.programs.loop_nests import row_major_offset
from mallorn.workers.tvm.programs.program_blocks import blocks_of, operator_of

# Their layout is the recipe's choice, so the operator at a transpose's other end requires it.
FOLLOWS: Final = re.compile(r".*conv\dd$|pool$")
SAYS_LITTLE: Final = ("", "elementwise", "gather", "layout")
VIEWS: Final = ("reshape", "memory.view")
# Strides of the compared positions: two orders that differ do so at nearly all positions.
STEPS: Final = (1, 7, 131)
_NUMBER: Final = re.compile(r"(?<=[a-z])\d+(?=_|$)")
Values = Mapping[int, int]  # by the hash of a variable


def count_remaining_copies(mod: Any) -> list[RemainingCopy]:
    """Count calls that only move data, by function and by the operator that requires it."""
    functions = {var.name_hint: function for var, function in mod.functions.items()}
    kinds = {name: classify_copy(function) for name, function in functions.items()}
    operators = {}
    for name, function in functions.items():
        operator = kinds[name]
        if not operator:
            blocks = blocks_of(tvm.IRModule({"main": function})) if has_static_tir_shapes(function) else []
            operator = operator_of(blocks) if blocks else ""
            if operator in SAYS_LITTLE:
                operator = _NUMBER.sub("", name.removeprefix("fused_"))
        operators[name] = operator

    main = mod["main"]
    values = {hash(binding.var): binding.value for block in main.body.blocks for binding in block.bindings}
    calls = {result: value for result, value in values.items() if _called(value) not in VIEWS}
    readers: dict[int, str] = {}  # the first reader of each result
    for call in reversed(calls.values()):
        readers |= {_origin(var, values): _called(call) for var in relax.analysis.free_vars(call)}

    copies: Counter[tuple[str, str, str]] = Counter()
    for result, call in calls.items():
        name = _called(call)
        if not (kind := kinds.get(name)):
            continue
        sources = (values.get(_origin(var, values)) for var in relax.analysis.free_vars(call))
        maker = next((_called(source) for source in sources if source is not None), "the input")
        reader = readers.get(result, "the output")
        made_by, read_by = operators.get(maker, maker), operators.get(reader, reader)
        blames_maker = kind == "transpose" and FOLLOWS.match(read_by) and not FOLLOWS.match(made_by)
        copies[name, kind, made_by if blames_maker else read_by] += 1
    return [
        RemainingCopy(function=function, kind=kind, required_by=asker, calls=count)
        for (function, kind, asker), count in copies.items()
    ]


def _called(value: Any) -> str:
    return callee(value) if isinstance(value, relax.Call) else VIEWS[0]


def _origin(var: Any, values: Mapping[int, Any]) -> int:
    """Return the hash of the variable that `var` is a view of, through any reshapes."""
    value = values.get(hash(var))
    if value is None or _called(value) not in VIEWS:
        return hash(var)
    viewed = relax.analysis.free_vars(value)
    return _origin(viewed[0], values) if viewed else hash(var)


def classify_copy(function: Any) -> str:
    """Return how a function moves data: transpose, concatenation, pad, slice or copy.
    Return an empty string if the function computes values or looks them up."""
    stores = collect_nodes(function, BufferStore) if has_static_tir_shapes(function) else []
    values = [value for store in stores for value in _possible_stored_values(store.value)]
    loads = [value for value in values if isinstance(value, TensorLoad)]
    extents: dict[int, int] = {}  # of loop and block variables
    if loads:
        extents |= {hash(loop.loop_var): int(loop.extent) for loop in collect_nodes(function, For)}
        for block in collect_nodes(function, SBlock):
            extents |= {hash(axis.var): int(axis.dom.extent) for axis in block.iter_vars}
    if not loads or any(_is_computed(value, extents) for value in values):
        return ""
    targets = {hash(store.buffer) for store in stores}
    buffers = {hash(load.source): load.source for load in loads}
    sources = {name: buffer for name, buffer in buffers.items() if name not in targets}
    if len(sources) > 1:
        return "concatenation"
    results = [param for param in function.params if hash(param) in targets]
    inputs, outputs = _elements(sources.values()), _elements(results)
    if inputs != outputs:
        return "slice" if outputs < inputs else "pad" if len(loads) < len(values) else "copy"
    return "transpose" if any(_reorders(store, extents) for store in stores) else "copy"


def _possible_stored_values(value: Any) -> list[Any]:
    """Return what a store may write: several values if loop indices choose between them."""
    match value:
        case Cast():
            return _possible_stored_values(value.value)
        case Select():
            condition, *options = value.condition, value.true_value, value.false_value
        case Call() if str(value.op.name) == "prim.if_then_else":
            condition, *options = value.args
        case _:
            return [value]
    if collect_nodes(condition, TensorLoad):
        return [value]
    return [written for option in options for written in _possible_stored_values(option)]


def _is_computed(value: Any, extents: Values) -> bool:
    """Return whether a value is neither a constant nor a load indexed by loop variables."""
    is_load = isinstance(value, TensorLoad)
    loop_vars = extents if is_load else {}
    for expression in value.indices if is_load else [value]:
        names = {hash(var) for var in collect_nodes(expression, Var)}
        if names - loop_vars.keys() or collect_nodes(expression, TensorLoad):
            return True
    return False


def _elements(buffers: Iterable[Any]) -> int:
    return sum(prod(int(size) for size in buffer.shape) for buffer in buffers)


def _reorders(store: Any, extents: Values) -> bool:
    """Return whether a store changes elements' row-major order, judged by a few samples."""
    for step in STEPS:
        point = {name: step * n % extent for n, (name, extent) in enumerate(extents.items(), start=1)}
        position = row_major_offset(store.buffer, store.indices, point)
        loads = (value for value in _possible_stored_values(store.value) if isinstance(value, TensorLoad))
        if any(row_major_offset(load.source, load.indices, point) != position for load in loads):
            return True
    return False
