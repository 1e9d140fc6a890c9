"""The seam of passes over tensor functions, fused by then: what they leave, and how they rewrite the rest."""

from abc import abstractmethod
from typing import Any, Generic, TypeVar

import tvm
from tvm.tirx import PrimFunc

from graphc.core.graph_rewriting import static
from graphc.core.reporting_pass import Leave, Report, ReportingPass

Facts = TypeVar("Facts")


class TensorFunctionPass(ReportingPass, Generic[Facts]):
    """A pass that rewrites tensor functions, one by one; those of unknown sizes are left."""

    @abstractmethod
    def check(self, function: Any) -> Facts:
        """What the rewriting needs to know of the function. Raises Leave."""

    @abstractmethod
    def rewrite(self, function: Any, facts: Facts) -> Any:
        """What takes the function's place: the same numbers, and the same parameters."""

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
            facts = self.check(function)
        except Leave as reason:
            report.leave(reason)
            return function
        report.fired += 1
        return self.rewrite(function, facts)
