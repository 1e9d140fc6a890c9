"""The seam of passes over a network's graph: what they match, why they leave a call, how they rewrite it."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from tvm import relax

from graphc.core.call_walk import CallWalk
from graphc.core.graph import Graph
from graphc.core.graph_rewriting import known
from graphc.core.reporting_pass import Leave, Report, ReportingPass

Facts = TypeVar("Facts")
Build = Callable[[], Any]  # facts of passes with a rule for each operator: what takes the call's place


class Pass(ReportingPass, Generic[Facts]):
    """A pass that rewrites calls of some operators, one by one, in the order of computing.

    What `check` finds out is all that `rewrite` gets. Calls of unknown sizes, single numbers, and results of
    other types than `dtype` are left before `check` is asked.
    """

    match: ClassVar[tuple[str, ...]]  # operators
    dtype: ClassVar[str] = "float32"  # of the result; empty for any
    any_size: ClassVar[bool] = False  # whether it takes unknown sizes and single numbers, too
    forward: ClassVar[bool] = False  # whether it looks at producers as it has rewritten them

    @abstractmethod
    def check(self, call: Any, g: Graph) -> Facts:
        """What the rewriting needs to know of the call. Builds nothing. Raises Leave."""

    @abstractmethod
    def rewrite(self, call: Any, facts: Facts, g: Graph) -> Any:
        """What takes the call's place: the same numbers, type and shape."""

    def applied(self, mod: Any) -> tuple[Any, Report]:
        """The module with all such calls rewritten, and what became of each."""
        builder, report = relax.BlockBuilder(mod), Report(self.name)
        for var, function in mod.functions.items():
            if isinstance(function, relax.Function):
                builder.update_func(var, self._rewritten(builder, function, report))
        found = builder.get()
        # Readers of one value are often rewritten alike.
        return (relax.transform.EliminateCommonSubexpr()(found) if report.fired else found), report

    def _rewritten(self, builder: Any, function: Any, report: Report) -> Any:
        graph = Graph(builder, function, self.lanes)

        def visit(variable: Any, call: Any) -> Any:
            graph.variable = variable
            try:
                facts = self._facts(call, graph)
            except Leave as reason:
                report.leave(reason)
                return call
            report.fired += 1
            return self.rewrite(call, facts, graph)

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
