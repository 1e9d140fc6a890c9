"""The seam of passes over a network's graph: what they match, why they leave a call, how they rewrite it."""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_rewriting import LANES, known

Facts = TypeVar("Facts")


class Leave(Exception):
    """Why a pass leaves a call as it is: a phrase about the call, which reports count."""


@dataclass
class Report:
    """What became of the calls that a pass matches."""

    name: str
    fired: int = 0
    left: Counter[str] = field(default_factory=Counter)  # by reason
    skipped: str = ""  # why the pass was not run at all
    counts: bool = True  # False where a pass tells nothing of calls

    @property
    def matched(self) -> int:
        return self.fired + self.left.total()


class Pass(ABC, Generic[Facts]):
    """A pass that rewrites calls of some operators, one by one.

    It keeps nothing between calls: what `check` finds out is all that `rewrite` gets. Calls of unknown sizes,
    single numbers, and results of other types than `dtype` are left before `check` is asked.
    """

    name: ClassVar[str]  # FOLDER.VERB_PHRASE, as reports and --without have it
    match: ClassVar[tuple[str, ...]]  # operators, rewritten one after another
    dtype: ClassVar[str] = "float32"  # of the result; empty for any
    rules: ClassVar[tuple[str, ...]] = ()  # schedule rules that its functions name
    targets: ClassVar[tuple[str, ...]] = ()  # features of processors, one of which it needs; none: all do
    after: ClassVar[tuple[str, ...]] = ()  # passes that come earlier where a recipe has them
    must: ClassVar[bool] = False  # whether the module does not lower without it

    def __init__(self, lanes: int = LANES) -> None:
        self.lanes = lanes

    @abstractmethod
    def check(self, call: Any, g: Graph) -> Facts:
        """What the rewriting needs to know of the call. Builds nothing. Raises Leave."""

    @abstractmethod
    def rewrite(self, call: Any, facts: Facts, g: Graph) -> Any:
        """What takes the call's place: the same numbers, type and shape."""

    def __call__(self, mod: Any) -> Any:
        """The module with all such calls rewritten."""
        return self.applied(mod)[0]

    def applied(self, mod: Any) -> tuple[Any, Report]:
        """The module with all such calls rewritten, and what became of each."""
        builder, report = relax.BlockBuilder(mod), Report(self.name)
        for var, function in mod.functions.items():
            if isinstance(function, relax.Function):
                for operator in self.match:
                    function = self._rewritten(builder, function, operator, report)
                builder.update_func(var, function)
        return builder.get(), report

    def _rewritten(self, builder: Any, function: Any, operator: str, report: Report) -> Any:
        graph, left = Graph(builder, function, self.lanes), dict[int, tuple[Any, str]]()

        def visit(call: Any, _: Any) -> Any:
            try:
                facts = self._facts(call, graph)
            except Leave as reason:
                left[hash(call)] = call, str(reason)
                return call
            report.fired += 1
            return self.rewrite(call, facts, graph)

        after = rewrite_call(is_op(operator)(varg_default_wildcard=True), visit, function)
        # The rewriter comes by again after each change, and meets calls that are no more.
        report.left += Counter(left[hash(call)][1] for call in _calls(after, operator) if hash(call) in left)
        return after

    def _facts(self, call: Any, graph: Graph) -> Facts:
        if not known(call):
            raise Leave("its sizes are known only when it runs")
        if call.ty.ndim == 0:
            raise Leave("its result is a single number")
        if self.dtype and call.ty.dtype != self.dtype:
            raise Leave(f"its numbers are {call.ty.dtype}, not {self.dtype}")
        return self.check(call, graph)


def _calls(function: Any, operator: str) -> list[Any]:
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and operator_name(node) == operator:
            found.append(node)

    relax.analysis.post_order_visit(function, visit)
    return found
