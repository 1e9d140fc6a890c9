"""A Relax function as passes read it (producers, readers, constants), and functions to add."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm
from tvm import relax


@dataclass(frozen=True)
class Chain:
    """Consecutive calls, each read only by the next, and the call before them."""

    calls: tuple[Any, ...]  # in the order of computing
    source: Any | None  # None if the chain begins with an input, a constant or a shared value


class Graph:
    """A function before a pass, and the module to which the pass adds tensor functions."""

    variable: Any  # the variable that the current call is bound to

    def __init__(self, builder: Any, function: Any, lanes: int) -> None:
        self.lanes = lanes  # float32 numbers in a vector of the target
        self._builder, self._function = builder, function
        self._look_up: Callable[[Any], Any] = lambda var: self._values.get(var)

    def look_up(self, look_up: Callable[[Any], Any]) -> None:
        """Use `look_up` to find what variables are bound to, such as rewritten calls."""
        self._look_up = look_up

    def producer(self, value: Any, *operators: str) -> Any | None:
        """Return the call that binds a variable, if it has one of these operators (or any)."""
        call = self.bound(value)
        if not isinstance(call, relax.Call):
            return None
        return call if not operators or operator_name(call) in operators else None

    def bound(self, value: Any) -> Any | None:
        """Return what a variable is bound to; None for inputs and for other expressions."""
        return self._look_up(value) if isinstance(value, relax.Var) else None

    def is_constant(self, value: Any) -> bool:
        """Return whether a value is a constant, which `array` can read."""
        return isinstance(value, tvm.ir.GenericConst)

    def tuple_fields(self, value: Any) -> Any:
        """Return the fields of a tuple, or of the tuple that a variable is bound to."""
        return (self._look_up(value) if isinstance(value, relax.Var) else value).fields

    def array(self, value: Any) -> Any:
        """Return a constant's numbers as a copy."""
        return value.value.numpy()

    def constant(self, array: Any) -> Any:
        """Return a constant of the array's type; `relax.const` makes int32 of int64, float32 of float64."""
        return relax.const(tvm.runtime.tensor(array))

    def reader_count(self, value: Any) -> int:
        """Return the number of readers of a variable, including the network's output."""
        return len(self._readers.get(value, ()))

    def readers(self, value: Any) -> list[Any]:
        """Return the calls that read a variable; None for a reader that is no call."""
        return [self.producer(reader) for reader in self._readers.get(value, ())]

    def read_once(self, value: Any) -> bool:
        """Return whether exactly one call reads a value, and it is no output of the network."""
        return isinstance(value, relax.DataflowVar) and self.reader_count(value) == 1

    def only_reader(self, value: Any, *operators: str) -> Any | None:
        """Return a variable's only reader if it is a call of these operators, else None."""
        return self.producer(*self._readers[value], *operators) if self.read_once(value) else None

    def chain(self, value: Any, through: Collection[str]) -> Chain:
        """Return the chain of calls of the operators `through` that ends in a value."""
        calls: list[Any] = []
        while self.read_once(value) and (call := self.producer(value)) is not None:
            if operator_name(call) not in through:
                return Chain(tuple(calls), call)
            calls.insert(0, call)
            value = call.args[0]
        return Chain(tuple(calls), None)

    def tensor_function(self, called: Any) -> Any:
        """Return the tensor function that a `call_tir` calls."""
        return self._builder.get()[called.args[0]]

    def call_function(self, name: str, function: Any, arguments: list[Any], result: Any) -> Any:
        """Add a tensor function under a name that begins with `name`, and return its call."""
        return relax.call_tir(self._builder.add_func(function, name), arguments, result)

    def call_te(self, name: str, compute: Any, *arguments: Any) -> Any:
        """Return a call of the tensor function that `compute` describes in TE."""
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
    """Return the name of a call's operator; empty for calls of functions."""
    return str(getattr(call.op, "name", ""))
