"""A Relax function as passes look at it: producers, readers, constants, and what they add to its module."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm
from tvm import relax


@dataclass(frozen=True)
class Chain:
    """Calls that follow each other, each read by the next alone, and the call in front of them."""

    calls: tuple[Any, ...]  # in the order of computing
    source: Any | None  # none where the chain begins with an input, a constant, or what others read, too


class Graph:
    """A function before a pass, and the module that the pass adds tensor functions to."""

    variable: Any  # that the call is bound to which the pass looks at

    def __init__(self, builder: Any, function: Any, lanes: int) -> None:
        self.lanes = lanes  # float32 numbers in a vector of the target
        self._builder, self._function = builder, function
        self._look_up: Callable[[Any], Any] = lambda var: self._values.get(var)

    def look_up(self, look_up: Callable[[Any], Any]) -> None:
        """Take what variables are bound to from there: from what was rewritten so far."""
        self._look_up = look_up

    def producer(self, value: Any, *operators: str) -> Any | None:
        """The call that a variable is bound to, if it is of these operators; of any if none is named."""
        call = self.bound(value)
        if not isinstance(call, relax.Call):
            return None
        return call if not operators or operator_name(call) in operators else None

    def bound(self, value: Any) -> Any | None:
        """What a variable is bound to; nothing for inputs, and for what is no variable."""
        return self._look_up(value) if isinstance(value, relax.Var) else None

    def is_constant(self, value: Any) -> bool:
        """True for weights and numbers; `array` reads them."""
        return isinstance(value, tvm.ir.GenericConst)

    def tuple_fields(self, value: Any) -> Any:
        """The parts of a tuple, also of one that a variable is bound to."""
        return (self._look_up(value) if isinstance(value, relax.Var) else value).fields

    def array(self, value: Any) -> Any:
        """A copy of a constant's numbers."""
        return value.value.numpy()

    def constant(self, array: Any) -> Any:
        """Return a constant of the array's type; `relax.const` makes int32 of int64, float32 of float64."""
        return relax.const(tvm.runtime.tensor(array))

    def reader_count(self, value: Any) -> int:
        """The number of calls that read a variable, outputs of the network included."""
        return len(self._readers.get(value, ()))

    def readers(self, value: Any) -> list[Any]:
        """The calls that read a variable; none in place of what is no call."""
        return [self.producer(reader) for reader in self._readers.get(value, ())]

    def read_once(self, value: Any) -> bool:
        """True if one call alone reads it; callers read the network's outputs, too."""
        return isinstance(value, relax.DataflowVar) and self.reader_count(value) == 1

    def only_reader(self, value: Any, *operators: str) -> Any | None:
        """The call that alone reads a variable, if it is of these operators."""
        return self.producer(*self._readers[value], *operators) if self.read_once(value) else None

    def chain(self, value: Any, through: Collection[str]) -> Chain:
        """The calls of some operators that end in a value, back to the first call of another operator."""
        calls: list[Any] = []
        while self.read_once(value) and (call := self.producer(value)) is not None:
            if operator_name(call) not in through:
                return Chain(tuple(calls), call)
            calls.insert(0, call)
            value = call.args[0]
        return Chain(tuple(calls), None)

    def tensor_function(self, called: Any) -> Any:
        """The tensor function that a `call_tir` calls."""
        return self._builder.get()[called.args[0]]

    def call_function(self, name: str, function: Any, arguments: list[Any], result: Any) -> Any:
        """The call of a tensor function, which joins the module under a name that begins so."""
        return relax.call_tir(self._builder.add_func(function, name), arguments, result)

    def call_te(self, name: str, compute: Any, *arguments: Any) -> Any:
        """The call of a tensor function that `compute` describes with TE."""
        typed = map(self._builder.normalize, arguments)
        return self._builder.call_te(compute, *typed, primfunc_name_hint=name)

    @cached_property
    def _values(self) -> Any:
        return relax.analysis.get_var2val(self._function)

    @cached_property
    def _readers(self) -> Any:
        return {
            var: users
            for block in self._function.body.blocks
            if isinstance(block, relax.DataflowBlock)
            for var, users in relax.analysis.udchain(block).items()
        }


def operator_name(call: Any) -> str:
    """The name of a call's operator; empty for calls of functions."""
    return str(getattr(call.op, "name", ""))
