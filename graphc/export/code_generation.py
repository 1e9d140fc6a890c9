"""Generate CPU code with 64-bit indices and without gathers, and other code with its kind's options.

LLVM sign-extends narrower indices for each load unless it can prove that none overflows.
LLVM underestimates the cost of gathers and would use them to read columns.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import tvm
from tvm.target.codegen import target_has_features

from mallorn.graphc.core.graph_kind import graph_kind_of

NARROWING: Final = "tirx.NarrowDataType"
NO_GATHERS: Final = ("+prefer-no-gather", "+prefer-no-scatter")


def compile_to_library(module: Any, target: Any, instruments: Sequence[Any] = (), **options: Any) -> Any:
    with compilation_context(target, instruments, **options):
        return tvm.tirx.build(module, target=target_without_gather(target))


@contextmanager
def compilation_context(target: Any, instruments: Sequence[Any] = (), **options: Any) -> Iterator[Any]:
    """Enter the target, which GPUs need, and a pass context; yield the context."""
    wide = target.kind.name == "llvm" and "64" in str(target.attrs.get("mtriple", "64"))
    options = dict(graph_kind_of(target).pass_options) | options
    context = tvm.transform.PassContext(
        instruments=list(instruments), disabled_pass=[NARROWING] if wide else [], config=options
    )
    with target, context:
        yield context


def target_without_gather(target: Any) -> Any:
    """Return the target for LLVM; with AVX2, it tells LLVM to avoid gather and scatter."""
    if target.kind.name != "llvm" or not target_has_features("avx2", target):
        return target
    attrs = dict(target.export())
    return tvm.target.Target(attrs | {"mattr": [*attrs.get("mattr", ()), *NO_GATHERS]})
