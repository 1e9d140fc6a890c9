"""Share equal constants between modules, since each tuned size is imported separately."""

import hashlib
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator


class Constants:
    """All distinct constants seen so far, by content."""

    def __init__(self) -> None:
        self._first_by_content: dict[tuple[Any, ...], Any] = {}

    def share(self, mod: Any) -> Any:
        """Return the module with each constant replaced by the first equal one seen."""
        functions = {
            var: _Sharing(self).visit_expr(function) if isinstance(function, relax.Function) else function
            for var, function in mod.functions.items()
        }
        return tvm.IRModule(functions, attrs=mod.attrs)

    def find_equal_or_add(self, constant: Any) -> Any:
        """Return the first equal constant seen; remember this one if there is none."""
        numbers = constant.value.numpy()
        content: Any = np.ascontiguousarray(numbers).reshape(-1).view("uint8")
        key = str(constant.ty.dtype), *numbers.shape, hashlib.sha256(content).digest()
        return self._first_by_content.setdefault(key, constant)


@mutator
class _Sharing(PyExprMutator):  # type: ignore[misc]
    def __init__(self, constants: Constants) -> None:
        super().__init__()
        self._constants = constants

    def visit_generic_const_(self, op: Any) -> Any:
        return self._constants.find_equal_or_add(op)
