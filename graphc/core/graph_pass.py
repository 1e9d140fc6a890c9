"""Base classes of passes on calls of a network's graph, and of passes on tensor functions."""

from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Generic, TypeVar

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.tirx import PrimFunc

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_rewriting import known, static
from graphc.core.reporting_pass import Leave, Report, ReportingPass


@mutator
class CallWalk(PyExprMutator):  # type: ignore[misc]
    """Replaces each call of some operators by what `visit` returns for it.

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
        return self._read(super().visit_var_(var))

    def visit_dataflow_var_(self, var: Any) -> Any:
        return self._read(super().visit_dataflow_var_(var))

    def _read(self, var: Any) -> Any:
        """Return the constant that a variable is bound to, if constants are read."""
        bound = self.lookup_binding(var) if self._read_constants and isinstance(var, relax.Var) else None
        return bound if isinstance(bound, tvm.ir.GenericConst) else var


Facts = TypeVar("Facts")
Build = Callable[[], Any]  # facts of passes with a rule per operator: builds the replacement


class Pass(ReportingPass, Generic[Facts]):
    """A pass that rewrites calls of some operators, one at a time, in the order of computing.

    `rewrite` only receives what `check` returns. Calls of unknown sizes, scalars, and results
    of other types than `dtype` are left before `check` runs. A call on which the pass raises
    an error is left, too, unless the module cannot be lowered without the pass.
    """

    match: ClassVar[tuple[str, ...]]  # operators to rewrite
    dtype: ClassVar[str] = "float32"  # required type of the result; empty for any
    any_size: ClassVar[bool] = False  # whether it accepts unknown sizes and scalars
    forward: ClassVar[bool] = False  # whether it sees producers as already rewritten

    @abstractmethod
    def check(self, call: Any, g: Graph) -> Facts:
        """Return what `rewrite` needs to know of the call. Builds nothing. Raises Leave."""

    @abstractmethod
    def rewrite(self, call: Any, facts: Facts, g: Graph) -> Any:
        """Return the call's replacement: the same numbers, type and shape."""

    def applied(self, mod: Any) -> tuple[Any, Report]:
        """Return the rewritten module, and a report on every matching call."""
        builder, report = relax.BlockBuilder(mod), Report(self.name)
        for var, function in mod.functions.items():
            if isinstance(function, relax.Function):
                builder.update_func(var, self._rewritten(builder, function, report))
        rewritten = builder.get()
        # Readers of one value often get equal replacements.
        return (relax.transform.EliminateCommonSubexpr()(rewritten) if report.fired else rewritten), report

    def _rewritten(self, builder: Any, function: Any, report: Report) -> Any:
        graph = Graph(builder, function, self.lanes)

        def visit(variable: Any, call: Any) -> Any:
            graph.variable = variable
            try:
                replacement = self.rewrite(call, self._facts(call, graph), graph)
            except Leave as reason:
                report.leave(reason)
                return call
            except Exception as error:
                self.leave_after(error, report)
                return call
            report.fired += 1
            return replacement

        walk = CallWalk(builder, self.match, visit, read_constants=self.forward)
        if self.forward:
            graph.look_up(walk.lookup_binding)
        return relax.analysis.remove_all_unused(walk.visit_expr(function))

    def _facts(self, call: Any, graph: Graph) -> Facts:
        if not self.any_size and not known(call):
            raise Leave("its sizes are known only when it runs")
        if not self.any_size and call.ty.ndim == 0:
            raise Leave("its result is a single number")
        if self.dtype and call.ty.dtype != self.dtype:
            raise Leave(f"its numbers are {call.ty.dtype}, not {self.dtype}")
        return self.check(call, graph)


class TensorFunctionPass(ReportingPass, Generic[Facts]):
    """A pass that rewrites tensor functions, one at a time.

    A function of unknown sizes is left, and so is one on which the pass raises an error.
    """

    @abstractmethod
    def check(self, function: Any) -> Facts:
        """Return what `rewrite` needs to know of the function. Raises Leave."""

    @abstractmethod
    def rewrite(self, function: Any, facts: Facts) -> Any:
        """Return the function's replacement: the same numbers and parameters."""

    def applied(self, mod: Any) -> tuple[Any, Report]:
        report = Report(self.name)
        functions = {
            var: self._rewritten(function, report) if isinstance(function, PrimFunc) else function
            for var, function in mod.functions.items()
        }
        return tvm.IRModule(functions, attrs=mod.attrs), report

    def _rewritten(self, function: Any, report: Report) -> Any:
        try:
            if not static(function):
                raise Leave("its sizes are known only when it runs")
            replacement = self.rewrite(function, self.check(function))
        except Leave as reason:
            report.leave(reason)
            return function
        except Exception as error:
            self.leave_after(error, report)
            return function
        report.fired += 1
        return replacement
