"""A walk over a function's calls in the order of computing, each with arguments that were visited before."""

from collections.abc import Callable, Collection
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from graphc.core.graph import operator_name


@mutator
class CallWalk(PyExprMutator):  # type: ignore[misc]
    """Asks `visit` what takes the place of each call of some operators.

    Patterns of TVM would match a quotient where a product is wanted, and come by again after each change.
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
        """The constant that a variable is bound to, where constants are read as such."""
        bound = self.lookup_binding(var) if self._read_constants and isinstance(var, relax.Var) else None
        return bound if isinstance(bound, tvm.ir.GenericConst) else var
