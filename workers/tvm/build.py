"""Candidates and reference programs as shared libraries."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from mallorn.core.errors import InvalidRequest
from workers.tvm.arguments import tensor_args
from workers.tvm.linker import blame_the_host, link_shared
from workers.tvm.programs import parse_module, parse_tvm_target
from workers.tvm.rebuild import rebuild

_REFERENCE_TARGET = '{"kind":"llvm","num-cores":1}'


class InvalidCandidate(InvalidRequest):
    """The decisions do not make a program; a postprocessor refused them."""


def build(tir: str, target: str, trace: str, decisions: Sequence[int], out_path: str) -> dict[str, Any]:
    """Compile a candidate to a library at `out_path`; what it took, in `build_ms` and `bytes`.

    `args` is what to call it with, in the form of the program's: its weights may have another shape.
    """
    started_sec = time.perf_counter()
    schedule = rebuild(tir, target, trace, decisions)
    if schedule is None:
        raise InvalidCandidate
    # What MetaSchedule's own builder does: weights come in the layout that the schedule wants.
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
    cost = _export(tvm.tirx.build(module, target=parse_tvm_target(target)), out_path, started_sec)
    return {**cost, "args": tensor_args(schedule.mod)}


def build_reference(tir: str, out_path: str) -> dict[str, float]:
    """Compile the program as it is, unscheduled, for any CPU like this one."""
    started_sec = time.perf_counter()
    target = parse_tvm_target(_REFERENCE_TARGET)
    return _export(tvm.tirx.build(parse_module(tir), target=target), out_path, started_sec)


def _export(library: Any, out_path: str, started_sec: float) -> dict[str, float]:
    try:
        if library.imports:
            library.export_library(out_path, fcompile=link_shared)
        else:
            _export_single(library, out_path)
    except RuntimeError:  # TVM's own error tells only in words that a file could not be written
        blame_the_host(Path(out_path).absolute().parent)
        raise
    elapsed_ms = (time.perf_counter() - started_sec) * 1000
    return {"build_ms": elapsed_ms, "bytes": os.path.getsize(out_path)}


def _export_single(library: Any, out_path: str) -> None:
    """What `export_library` does for one host module, without its temporary directory."""
    object_path = Path(out_path).with_suffix(".o")
    try:
        library.write_to_file(str(object_path))
        link_shared(out_path, [str(object_path)])
    finally:
        object_path.unlink(missing_ok=True)
