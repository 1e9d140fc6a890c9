"""Register the tensor intrinsics of one target, since importing all takes ten seconds."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from mallorn.core.registry import list_kinds
from mallorn.graphc.core.graph_rewriting import stacks_without_sources
from mallorn.workers.tvm.programs.compiler_kind import CompilerKind, compiler_kind

_PACKAGE: Final = "tvm.s_tir.tensor_intrin"


def load_intrinsics(target: str) -> None:
    """Register the intrinsics that schedules for a target may use, and keep TVM from
    importing all others. Call this before ``TuneContext`` and TVM's builders."""
    _import_modules(compiler_kind(target).intrinsics)


def _import_modules(modules: Sequence[str]) -> None:
    if _PACKAGE not in sys.modules:
        import tvm.s_tir

        package = ModuleType(_PACKAGE, "Tensor intrinsics, registered one target kind at a time.")
        package.__path__ = [str(Path(tvm.s_tir.__file__).parent / "tensor_intrin")]
        package.__package__ = _PACKAGE
        sys.modules[_PACKAGE] = package
        tvm.s_tir.tensor_intrin = package
    with stacks_without_sources():
        for module in modules:
            importlib.import_module(module)


def load_intrinsics_of(trace: str) -> None:
    """Register the intrinsics of accelerators that a trace names, for callers without a target."""
    for kind in list_kinds():
        if kind.instruction_mark and kind.instruction_mark in trace:
            _import_modules(kind.part(CompilerKind).intrinsics)
