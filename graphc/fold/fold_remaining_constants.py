"""What else depends on constants alone, computed by TVM.

Its FoldConstant makes a tensor function of every operator of a network to see whether it can be folded, which
takes a third of an import: it is asked only where something can be.
"""

from collections.abc import Iterator
from typing import Any

from tvm import relax

from graphc.core.reporting_pass import Report, ReportingPass


class FoldRemainingConstants(ReportingPass):
    """Lets TVM compute what is made of constants and left by numpy, if there is any."""

    name = "fold.remaining_constants"

    def applied(self, mod: Any) -> tuple[Any, Report]:
        functions = [each for each in mod.functions.values() if isinstance(each, relax.Function)]
        report = Report(self.name, fired=sum(map(_has_constant_results, functions)))
        return (relax.transform.FoldConstant()(mod) if report.fired else mod), report


def _has_constant_results(function: Any) -> bool:
    """True if something is made of nothing that is computed, or may be: inside branches."""
    values = [binding.value for block in function.body.blocks for binding in block.bindings]
    return any(
        isinstance(value, relax.If) or not any(isinstance(leaf, relax.Var) for leaf in _leaves(value))
        for value in values
    )


def _leaves(value: Any) -> Iterator[Any]:
    """Variables, constants and shapes that an expression is made of."""
    if isinstance(value, relax.Call | relax.Tuple):
        for part in value.args if isinstance(value, relax.Call) else value.fields:
            yield from _leaves(part)
    elif isinstance(value, relax.TupleGetItem):
        yield value.tuple_value
    else:
        yield value
