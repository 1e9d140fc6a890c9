"""Reorder constant weights in NumPy; TVM's FoldConstant compiles a library for each call."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, Final

import numpy as np
from tvm import relax, tirx
from tvm.s_tir import SBlockRealize

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import sizes_of

Values = dict[Any, Any]  # values of variables, over all iterations of their loops
_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
    tirx.LT: operator.lt,
    tirx.LE: operator.le,
    tirx.GT: operator.gt,
    tirx.GE: operator.ge,
    tirx.EQ: operator.eq,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}


def run_copies(function: Any, inputs: Sequence[Any]) -> list[Any]:
    """Run a function that only copies; return its outputs. Raises Leave if it does more."""
    arrays = dict(zip(function.params, inputs, strict=False))
    outputs = {
        param: np.zeros([int(extent) for extent in param.ty.shape], str(param.ty.dtype))
        for param in function.params[len(inputs) :]
    }
    root = function.body.block if isinstance(function.body, SBlockRealize) else None
    if root is None or root.alloc_buffers:
        raise Leave("the function keeps intermediate buffers")
    for nest in _flatten_statements(root.body):
        # Each nest of loops stores one number per iteration.
        loops = []
        while isinstance(nest, tirx.For):
            loops.append(nest)
            nest = nest.body
        store = nest.block.body if isinstance(nest, SBlockRealize) else None
        if not isinstance(store, tirx.BufferStore) or not hasattr(store.value, "source"):
            raise Leave("the function does more than copy numbers")
        grid = np.ogrid[tuple(slice(int(loop.min), int(loop.min + loop.extent)) for loop in loops)]
        values: Values = dict(zip((loop.loop_var for loop in loops), grid, strict=True))
        axes = zip(nest.block.iter_vars, nest.iter_values, strict=True)
        values |= {axis.var: _value(bound, values, arrays) for axis, bound in axes}
        indices = [_value(index, values, arrays) for index in store.indices]
        is_active = _value(nest.predicate, values, arrays)
        numbers = _value(store.value, values, arrays)
        if is_active is not True and not np.all(is_active):
            raise Leave("some iterations of the function store nothing")
        outputs[store.buffer][tuple(np.broadcast_arrays(*indices))] = numbers
    return list(outputs.values())


def _flatten_statements(body: Any) -> Iterator[Any]:
    return chain(*map(_flatten_statements, body.seq)) if isinstance(body, tirx.SeqStmt) else iter([body])


def _value(expr: Any, values: Values, arrays: Mapping[Any, Any]) -> Any:
    """Evaluate an expression for all iterations at once. Raises Leave if unsupported."""
    if isinstance(expr, tirx.Var) and expr in values:
        return values[expr]
    if isinstance(expr, tirx.IntImm | tirx.FloatImm):
        return bool(expr.value) if str(expr.ty.dtype) == "bool" else expr.value
    if isinstance(expr, tirx.Cast) and str(expr.ty.dtype).startswith("int"):
        return _value(expr.value, values, arrays)
    if compute := _BINARY.get(type(expr)):
        return compute(_value(expr.a, values, arrays), _value(expr.b, values, arrays))
    source = getattr(expr, "source", None)  # the buffer of a load
    if source is not None and source in arrays:
        indices = [_value(index, values, arrays) for index in expr.indices]
        return arrays[source][tuple(np.broadcast_arrays(*indices))]
    raise Leave("the function does more than copy numbers")


# More numbers than this are copied faster by compiled code.
MOST_NUMBERS: Final = 1 << 21


class FoldConstantCopies(Pass[list[Any]]):
    """Runs, at compile time and in NumPy, tensor functions that only copy constants."""

    name, match = "fold_constant_copies", ("relax.call_tir",)
    dtype, any_size = "", True

    def check(self, call: Any, g: Graph) -> list[Any]:
        arguments = list(call.args[1].fields)
        if not arguments or not all(map(g.is_constant, arguments)):
            raise Leave("an argument of the function is computed")
        if sum(prod(sizes_of(argument)) for argument in arguments) > MOST_NUMBERS:
            raise Leave("the arguments are large: compiled code copies them faster")
        return run_copies(g.tensor_function(call), [g.array(argument) for argument in arguments])

    def rewrite(self, call: Any, facts: list[Any], g: Graph) -> Any:
        constants = [g.constant(array) for array in facts]
        return relax.Tuple(constants) if isinstance(call.ty, relax.TupleType) else constants[0]
