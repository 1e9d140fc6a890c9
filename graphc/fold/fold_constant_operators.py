"""Compute operators on constants at compile time: in NumPy if possible, else in TVM."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

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
