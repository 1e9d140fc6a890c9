"""Code for a processor: its indices are as wide as addresses, and it gathers nothing.

LLVM extends narrower indices anew for each load, unless it can prove that none overflows.
Of gathers it thinks too well: it goes down columns with them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import tvm
from tvm.target.codegen import target_has_features

NARROWING: Final = "tirx.NarrowDataType"
NO_GATHERS: Final = ("+prefer-no-gather", "+prefer-no-scatter")


def compiled(module: Any, target: Any, instruments: Sequence[Any] = (), **options: Any) -> Any:
    """The library of a module of tensor functions, in memory."""
    with compiling(target, instruments, **options):
        return tvm.tirx.build(module, target=generating(target))


@contextmanager
def compiling(target: Any, instruments: Sequence[Any] = (), **options: Any) -> Iterator[Any]:
    """Enter the target, whose architecture CUDA's compiler asks for, and yield TVM's pass context."""
    wide = target.kind.name == "llvm" and "64" in str(target.attrs.get("mtriple", "64"))
    context = tvm.transform.PassContext(
        instruments=list(instruments),
        disabled_pass=[NARROWING] if wide else [],
        config=options,
    )
    with target, context:
        yield context


def generating(target: Any) -> Any:
    """The target as LLVM is told it."""
    if target.kind.name != "llvm" or not target_has_features("avx2", target):
        return target
    attrs = dict(target.export())
    return tvm.target.Target(attrs | {"mattr": [*attrs.get("mattr", ()), *NO_GATHERS]})
