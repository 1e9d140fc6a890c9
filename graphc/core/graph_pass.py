"""Base classes of passes on Relax functions and on tensor functions, and `Graph`."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.tirx import PrimFunc

from mallorn.graphc.core.graph_rewriting import LANES, has_known_sizes, has_static_tir_shapes


class Leave(Exception):
    """Raised with the reason why a pass leaves something as it is; reports count reasons.

    Without a reason it is not counted: the operator matches but does not concern the pass.
    """


class Unsupported(ValueError):
    """Raised if the target lacks what the job asked for: the pass may not be skipped."""


# Exceptions that do not indicate a defect of the pass.
NOT_THE_PASS = (MemoryError, OSError, Unsupported)


@dataclass
class Report:
    """Counts the calls or functions that a pass rewrote, and those it left, by reason."""

    name: str
    fired: int = 0
    left: Counter[str] = field(default_factory=Counter)  # by reason
    skipped: str = ""  # why the pass did not run
    counts: bool = True  # False if the pass does not count
    errors: Counter[str] = field(default_factory=Counter)  # errors, by message; counted in `left`, too

    @property
    def matched(self) -> int:
        return self.fired + self.left.total()


class ReportingPass(ABC):
    """A pass that reports what it rewrote. It keeps no state between two rewrites."""

    name: ClassVar[str]  # the class's name in snake_case, as graphc/core/pass_registry.py lists it
    rules: ClassVar[tuple[str, ...]] = ()  # schedule rules that its functions name
    targets: ClassVar[tuple[str, ...]] = ()  # CPU features, one of which it needs, if any
    after: ClassVar[tuple[str, ...]] = ()  # passes that run earlier if a recipe has them
    is_required: ClassVar[bool] = False  # whether the module cannot be lowered without it
    needed_by: ClassVar[tuple[str, ...]] = ()  # passes whose results TVM can lower only after it

    def __init__(self, lanes: int = LANES) -> None:
        self.lanes = lanes

    def count_error(self, error: Exception, report: Report) -> None:
        """Count an error as a reason for which the pass left a call or function unchanged.

        Raises the error instead if the module cannot be compiled without the pass
        (`is_required`), or if it does not indicate a defect of the pass (NOT_THE_PASS).
        """
        if self.is_required or isinstance(error, NOT_THE_PASS):
            raise error
        first_line, *_ = str(error).strip().split("\n")
        description = f"{type(error).__name__}: {first_line}"
        report.errors[description] += 1
        report.left[description] += 1

    def attempt(self, rewrite: Callable[[Any], Any], old: Any, report: Report) -> Any:
        """Return what a call or function is rewritten to, or itself if unchanged."""
        try:
            replacement = rewrite(old)
        except Leave as reason:
            if reason.args:
                report.left[str(reason)] += 1
        except Exception as error:
            self.count_error(error, report)
        else:
            report.fired += 1
            return replacement
        return old

    def __call__(self, mod: Any) -> Any:
        return self.apply(mod)[0]

    @abstractmethod
    def apply(self, mod: Any) -> tuple[Any, Report]:
        """Return the rewritten module, and counts of calls rewritten or left unchanged."""


@dataclass(frozen=True)
class Chain:
    """Consecutive calls, each read only by the next, and the call that the first reads."""

    calls: tuple[Any, ...]  # in the order of computing
    source: Any | None  # None if the chain begins with an input, a constant or a shared value


class Graph:
    """The Relax function that a pass rewrites, and the module that it adds functions to."""

    variable: Any  # the variable that the current call is bound to

    def __init__(self, builder: Any, function: Any, lanes: int) -> None:
        self.lanes = lanes  # float32 numbers in a vector of the target
        self._builder, self._function = builder, function
        self.look_up: Callable[[Any], Any] = lambda var: self._values.get(var)

    def producer(self, value: Any, *operators: str) -> Any | None:
        """Return the call bound to a variable, if it is of `operators` (or any)."""
        call = self.bound_expression(value)
        if not isinstance(call, relax.Call):
            return None
        return call if not operators or operator_name(call) in operators else None

    def bound_expression(self, value: Any) -> Any | None:
        """Return the expression bound to a variable; None for inputs and non-variables."""
        return self.look_up(value) if isinstance(value, relax.Var) else None

    def is_constant(self, value: Any) -> bool:
        return isinstance(value, tvm.ir.GenericConst)

    def tuple_fields(self, value: Any) -> Any:
        """Return the fields of a tuple, or of the tuple that a variable is bound to."""
        return (self.look_up(value) if isinstance(value, relax.Var) else value).fields

    def array(self, value: Any) -> Any:
        """Return a constant's numbers as a copy."""
        return value.value.numpy()

    def constant(self, array: Any) -> Any:
        """Return an array as a Relax constant; `relax.const` would narrow 64-bit types."""
        return relax.const(tvm.runtime.tensor(array))

    def reader_count(self, value: Any) -> int:
        """Return the number of readers of a variable, including the network's output."""
        return len(self._readers.get(value, ()))

    def readers(self, value: Any) -> list[Any]:
        """Return the calls that read a variable; None for each reader that is no call."""
        return [self.producer(reader) for reader in self._readers.get(value, ())]

    def has_one_reader(self, value: Any) -> bool:
        """Return whether exactly one call reads a value, and it is no output of the network."""
        return isinstance(value, relax.DataflowVar) and self.reader_count(value) == 1

    def only_reader(self, value: Any, *operators: str) -> Any | None:
        """Return a variable's only reader if it is a call of these operators, else None."""
        return self.producer(*self._readers[value], *operators) if self.has_one_reader(value) else None

    def chain(self, value: Any, operators: Collection[str]) -> Chain:
        """Return the longest chain of calls of `operators` that ends in a value."""
        calls: list[Any] = []
        while self.has_one_reader(value) and (call := self.producer(value)) is not None:
            if operator_name(call) not in operators:
                return Chain(tuple(calls), call)
            calls.insert(0, call)
            value = call.args[0]
        return Chain(tuple(calls), None)

    def tensor_function(self, call: Any) -> Any:
        return self._builder.get()[call.args[0]]

    def call_function(self, name: str, function: Any, arguments: list[Any], result: Any) -> Any:
        """Add a tensor function under a name that begins with `name`, and return its call."""
        return relax.call_tir(self._builder.add_func(function, name), arguments, result)

    def call_te(self, name: str, compute: Any, *arguments: Any) -> Any:
        """Add the tensor function that `compute` describes in TE, and return its call."""
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


@mutator
class CallWalk(PyExprMutator):  # type: ignore[misc]
    """Replaces each call of the given operators by what `visit` returns for it.

    TVM's own patterns would match a quotient as a product, and would revisit replaced calls.
    """

    def __init__(
        self, builder: Any, operators: Collection[str], visit: Callable[[Any, Any], Any], read_constants: bool
    ) -> None:
        super().__init__()
        self.builder_ = builder  # of the module that `visit` adds functions to
        self._operators, self._visit, self._read_constants = operators, visit, read_constants

    def visit_call_(self, call: Any) -> Any:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        if operator_name(call) in self._operators:
            return self._visit(self._variable, call)
        return call

    def visit_var_binding_(self, binding: Any) -> None:
        self._variable = binding.var
        super().visit_var_binding_(binding)

    def visit_var_(self, var: Any) -> Any:
        return self._inline_constant(super().visit_var_(var))

    def visit_dataflow_var_(self, var: Any) -> Any:
        return self._inline_constant(super().visit_dataflow_var_(var))

    def _inline_constant(self, var: Any) -> Any:
        bound = self.lookup_binding(var) if self._read_constants and isinstance(var, relax.Var) else None
        return bound if isinstance(bound, tvm.ir.GenericConst) else var


Facts = TypeVar("Facts")
Build = Callable[[], Any]  # facts of passes with a rule per operator: builds the replacement


class Pass(ReportingPass, Generic[Facts]):
    """Rewrites calls of the operators in `match`, one at a time, in execution order.

    `check` decides whether a call is rewritten, and `rewrite` builds the replacement. Calls
    stay unchanged if they have unknown sizes or a scalar result (unless `any_size`), or if
    the result is not of `dtype`. `count_error` counts or raises errors other than Leave.
    """

    match: ClassVar[tuple[str, ...]]  # operators to rewrite
    dtype: ClassVar[str] = "float32"  # required type of the result; empty for any
    any_size: ClassVar[bool] = False  # whether it accepts unknown sizes and scalars
    forward: ClassVar[bool] = False  # whether it sees producers as already rewritten

    @abstractmethod
    def check(self, call: Any, g: Graph) -> Facts:
        """Analyse a call; return facts for `rewrite`, or raise Leave to keep the call."""

    @abstractmethod
    def rewrite(self, call: Any, facts: Facts, g: Graph) -> Any:
        """Return an expression that computes the same tensor as the call."""

    def apply(self, mod: Any) -> tuple[Any, Report]:
        builder, report = relax.BlockBuilder(mod), Report(self.name)
        for var, function in mod.functions.items():
            if isinstance(function, relax.Function):
                builder.update_func(var, self._rewrite_function(builder, function, report))
        rewritten = builder.get()
        # Readers of one value often get equal replacements.
        return (relax.transform.EliminateCommonSubexpr()(rewritten) if report.fired else rewritten), report

    def _rewrite_function(self, builder: Any, function: Any, report: Report) -> Any:
        graph = Graph(builder, function, self.lanes)

        def visit(variable: Any, call: Any) -> Any:
            graph.variable = variable
            return self.attempt(rewrite, call, report)

        def rewrite(call: Any) -> Any:
            if not self.any_size and not has_known_sizes(call):
                raise Leave("the sizes of the operator are known only at run time")
            if not self.any_size and call.ty.ndim == 0:
                raise Leave("the result is a single number")
            if self.dtype and call.ty.dtype != self.dtype:
                raise Leave(f"the result is {call.ty.dtype}, not {self.dtype}")
            return self.rewrite(call, self.check(call, graph), graph)

        walk = CallWalk(builder, self.match, visit, read_constants=self.forward)
        if self.forward:
            graph.look_up = walk.lookup_binding  # also finds rewritten calls
        return relax.analysis.remove_all_unused(walk.visit_expr(function))


class TensorFunctionPass(ReportingPass, Generic[Facts]):
    """A pass that rewrites tensor functions, one at a time. Functions of unknown sizes stay
    unchanged. `count_error` counts errors, or raises them."""

    @abstractmethod
    def check(self, function: Any) -> Facts:
        """Analyse a function; return facts for `rewrite`, or raise Leave to keep it."""

    @abstractmethod
    def rewrite(self, function: Any, facts: Facts) -> Any:
        """Return a function with the same parameters that computes the same numbers."""

    def apply(self, mod: Any) -> tuple[Any, Report]:
        report = Report(self.name)
        functions = {
            var: self.attempt(self._rewrite, function, report) if isinstance(function, PrimFunc) else function
            for var, function in mod.functions.items()
        }
        return tvm.IRModule(functions, attrs=mod.attrs), report

    def _rewrite(self, function: Any) -> Any:
        if not has_static_tir_shapes(function):
            raise Leave("the sizes of the operator are known only at run time")
        return self.rewrite(function, self.check(function))
