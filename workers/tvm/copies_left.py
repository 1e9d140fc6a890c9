"""The functions of a network that only move data, and the operators that ask for them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, Final

import tvm
from tvm import relax
from tvm.ir import Call, TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, Cast, For, Select, Var

from graphc.core.graph_rewriting import collect, static
from mallorn.core.values.graph_report import CopyLeft
from workers.tvm.loop_nests import place
from workers.tvm.program_blocks import blocks_of, operator_of
from workers.tvm.run_recipe_passes import callee

# Operators follow the layout that recipes choose: what lies at the other end of a transpose asks for it.
FOLLOWS: Final = re.compile(r".*conv\dd$|pool$")
SAYS_LITTLE: Final = ("", "elementwise", "gather", "layout")
VIEWS: Final = ("reshape", "memory.view")
# Steps to the places that are compared: where two orders differ, they do so nearly everywhere.
STEPS: Final = (1, 7, 131)
_NUMBER: Final = re.compile(r"(?<=[a-z])\d+(?=_|$)")
Values = Mapping[int, int]  # of variables, by their identity


def copies_left(mod: Any) -> list[CopyLeft]:
    """Calls that only move data, by function and by the operator that asks for it."""
    return [
        CopyLeft(function=function, kind=kind, asked_by=asker, calls=calls)
        for (function, kind, asker), calls in Counter(_moves(mod)).items()
    ]


def _moves(mod: Any) -> Iterator[tuple[str, str, str]]:
    functions = {var.name_hint: function for var, function in mod.functions.items()}
    kinds = {name: kind_of_copy(function) for name, function in functions.items()}
    operators = {name: kinds[name] or _operator(name, each) for name, each in functions.items()}
    for name, *ends in _calls(mod["main"]):
        if kind := kinds.get(name):
            made_by, read_by = (operators.get(end, end) for end in ends)
            turned = kind == "transpose" and FOLLOWS.match(read_by) and not FOLLOWS.match(made_by)
            yield name, kind, made_by if turned else read_by


def _operator(name: str, function: Any) -> str:
    """What a function does, or what it is called where that says more."""
    blocks = blocks_of(tvm.IRModule({"main": function})) if static(function) else []
    found = operator_of(blocks) if blocks else ""
    return _NUMBER.sub("", name.removeprefix("fused_")) if found in SAYS_LITTLE else found


def _calls(main: Any) -> Iterator[tuple[str, str, str]]:
    """What is called, what made the first that it reads, and what reads its result first."""
    bound = {hash(each.var): each.value for block in main.body.blocks for each in block.bindings}
    calls = {result: value for result, value in bound.items() if _called(value) not in VIEWS}
    readers: dict[int, str] = {}
    for call in reversed(calls.values()):
        readers |= {_origin(var, bound): _called(call) for var in relax.analysis.free_vars(call)}
    for result, call in calls.items():
        sources = (bound.get(_origin(var, bound)) for var in relax.analysis.free_vars(call))
        made_by = next((_called(source) for source in sources if source is not None), "the input")
        yield _called(call), made_by, readers.get(result, "the output")


def _called(value: Any) -> str:
    return callee(value) if isinstance(value, relax.Call) else VIEWS[0]


def _origin(var: Any, bound: Mapping[int, Any]) -> int:
    """The variable behind views."""
    value = bound.get(hash(var))
    if value is None or _called(value) not in VIEWS:
        return hash(var)
    viewed = relax.analysis.free_vars(value)
    return _origin(viewed[0], bound) if viewed else hash(var)


def kind_of_copy(function: Any) -> str:
    """Transpose, concatenation, pad, slice or copy; empty for what computes or looks up."""
    stores = collect(function, BufferStore) if static(function) else []
    moved = [value for store in stores for value in _stored(store.value)]
    loads = [value for value in moved if isinstance(value, TensorLoad)]
    extents = _extents(function) if loads else {}
    if not loads or any(_computed(value, extents) for value in moved):
        return ""
    written = {hash(store.buffer) for store in stores}
    buffers = {hash(load.source): load.source for load in loads}
    sources = {name: each for name, each in buffers.items() if name not in written}
    if len(sources) > 1:
        return "concatenation"
    results = [param for param in function.params if hash(param) in written]
    gone_in, come_out = _elements(sources.values()), _elements(results)
    if gone_in != come_out:
        return "slice" if come_out < gone_in else "pad" if len(loads) < len(moved) else "copy"
    return "transpose" if any(_reorders(store, extents) for store in stores) else "copy"


def _stored(value: Any) -> list[Any]:
    """What a store may write, by its place alone."""
    match value:
        case Cast():
            return _stored(value.value)
        case Select():
            choice, *chosen = value.condition, value.true_value, value.false_value
        case Call() if str(value.op.name) == "prim.if_then_else":
            choice, *chosen = value.args
        case _:
            return [value]
    if collect(choice, TensorLoad):
        return [value]
    return [each for part in chosen for each in _stored(part)]


def _extents(function: Any) -> Values:
    extents = {hash(loop.loop_var): int(loop.extent) for loop in collect(function, For)}
    for block in collect(function, SBlock):
        extents |= {hash(axis.var): int(axis.dom.extent) for axis in block.iter_vars}
    return extents


def _computed(value: Any, extents: Values) -> bool:
    """Whether a value is neither a constant nor an element whose place the loops alone tell."""
    loaded = isinstance(value, TensorLoad)
    known = extents if loaded else {}
    for each in value.indices if loaded else [value]:
        names = {hash(var) for var in collect(each, Var)}
        if names - known.keys() or collect(each, TensorLoad):
            return True
    return False


def _elements(buffers: Iterable[Any]) -> int:
    return sum(prod(int(size) for size in buffer.shape) for buffer in buffers)


def _reorders(store: Any, extents: Values) -> bool:
    """Whether elements come to other places than they had, counted row by row."""
    for step in STEPS:
        point = {name: step * at % extent for at, (name, extent) in enumerate(extents.items(), start=1)}
        here = place(store.buffer, store.indices, point)
        loads = (value for value in _stored(store.value) if isinstance(value, TensorLoad))
        if any(place(load.source, load.indices, point) != here for load in loads):
            return True
    return False
