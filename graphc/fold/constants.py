"""Compute operators on constants, reorder constant weights, and share equal constants."""

import hashlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.s_tir import SBlockRealize

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, Report, ReportingPass, operator_name
from mallorn.graphc.core.graph_rewriting import has_known_sizes, permutation, sizes_of

_REALS = ("float32",)
_NUMBERS = (*_REALS, "int32", "int64")
_ANY = (*_NUMBERS, "bool")
# Operators for which NumPy gives the same bits as TVM, and the data types for which it does.
_ELEMENTWISE: Mapping[str, tuple[Callable[..., Any], Sequence[str]]] = {
    "add": (np.add, _NUMBERS),
    "astype": (np.asarray, _ANY),
    "divide": (np.divide, _REALS),
    "isnan": (np.isnan, _REALS),
    "multiply": (np.multiply, _NUMBERS),
    "negative": (np.negative, _NUMBERS),
    "sqrt": (np.sqrt, _REALS),
    "subtract": (np.subtract, _NUMBERS),
    "where": (np.where, _ANY),
}
_MOVES: Mapping[str, Callable[[Any, Any], Any]] = {
    "expand_dims": lambda call, value: value.reshape(sizes_of(call)),
    "permute_dims": lambda call, value: np.transpose(value, permutation(call)),
    "reshape": lambda call, value: value.reshape(sizes_of(call)),
    "squeeze": lambda call, value: value.reshape(sizes_of(call)),
}
_TYPES: Mapping[str, Sequence[str]] = {
    **{name: (*types, "bool") for name, (_, types) in _ELEMENTWISE.items()},
    **dict.fromkeys(_MOVES, (*_ANY, "int8", "uint8")),
}
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


class FoldConstantOperators(Pass[list[Any]]):
    """Computes operators on constants in NumPy, since TVM compiles a library for each."""

    name = "fold_constant_operators"
    match = tuple(f"relax.{name}" for name in (*_ELEMENTWISE, *_MOVES))
    dtype = ""
    any_size = forward = True

    def check(self, call: Any, g: Graph) -> list[Any]:
        values = [arg for arg in call.args if not isinstance(arg, relax.ShapeExpr)]
        if not all(g.is_constant(value) for value in values):
            raise Leave("an argument of the operator is computed")
        if not {str(value.ty.dtype) for value in (*values, call)} <= set(_TYPES[_name(call)]):
            raise Leave("numpy may round values of this type differently from TVM")
        if not has_known_sizes(call):
            raise Leave("the sizes of the operator are known only at run time")
        return [g.array(value) for value in values]

    def rewrite(self, call: Any, facts: list[Any], g: Graph) -> Any:
        name = _name(call)
        if name in _MOVES:
            return g.constant(np.asarray(_MOVES[name](call, facts[0]), order="C"))
        with np.errstate(all="ignore"):
            result = _ELEMENTWISE[name][0](*facts)
        return g.constant(np.asarray(result).astype(str(call.ty.dtype)))


def _name(call: Any) -> str:
    return operator_name(call).removeprefix("relax.")


class FoldRemainingConstants(ReportingPass):
    """Runs TVM's FoldConstant on constants that `fold_constant_operators` left, if any.

    FoldConstant makes a tensor function of every operator, which takes a third of an import.
    So it runs only if an expression has only constant operands, or if there are branches.
    """

    name = "fold_remaining_constants"

    def apply(self, mod: Any) -> tuple[Any, Report]:
        functions = [function for function in mod.functions.values() if isinstance(function, relax.Function)]
        fired = 0
        for function in functions:
            values = [binding.value for block in function.body.blocks for binding in block.bindings]
            # An expression has only constant operands, or may in branches.
            fired += any(
                isinstance(value, relax.If) or not any(isinstance(leaf, relax.Var) for leaf in _leaves(value))
                for value in values
            )
        report = Report(self.name, fired=fired)
        return (relax.transform.FoldConstant()(mod) if report.fired else mod), report


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, relax.Call | relax.Tuple):
        for part in value.args if isinstance(value, relax.Call) else value.fields:
            yield from _leaves(part)
    elif isinstance(value, relax.TupleGetItem):
        yield value.tuple_value
    else:
        yield value


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
    """Runs, at compile time and in NumPy, tensor functions that only copy constants.

    TVM's FoldConstant would compile a library for each call.
    """

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


class Constants:
    """All distinct constants seen so far, by content; each tuned size is imported separately."""

    def __init__(self) -> None:
        self._first_by_content: dict[tuple[Any, ...], Any] = {}

    def share(self, mod: Any) -> Any:
        """Return the module with each constant replaced by the first equal one seen."""
        functions = {
            var: _Sharing(self).visit_expr(function) if isinstance(function, relax.Function) else function
            for var, function in mod.functions.items()
        }
        return tvm.IRModule(functions, attrs=mod.attrs)

    def find_equal_or_add(self, constant: Any) -> Any:
        """Return the first equal constant seen; remember this one if there is none."""
        numbers = constant.value.numpy()
        content: Any = np.ascontiguousarray(numbers).reshape(-1).view("uint8")
        key = str(constant.ty.dtype), *numbers.shape, hashlib.sha256(content).digest()
        return self._first_by_content.setdefault(key, constant)


@mutator
class _Sharing(PyExprMutator):  # type: ignore[misc]
    def __init__(self, constants: Constants) -> None:
        super().__init__()
        self._constants = constants

    def visit_generic_const_(self, op: Any) -> Any:
        return self._constants.find_equal_or_add(op)
