"""Candidates and reference programs as shared libraries.

A candidate's machine code goes without what costs a compiler time and a kernel nothing:

- No checks of arguments, most of a small kernel's code: the runner makes them as they are wanted.
- LLVM's scheduler compares each access to memory with up to 1,000 before it in its block: most of
  the time of huge unrolled bodies. A fifth of it gives nearly the same order.
"""

import json
import os
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from graphc.export.code_generation import compiled
from mallorn.core.errors import InvalidRequest
from workers.interfaces.candidate_compiler import Library
from workers.tvm.kernel_figures import compile_for_cuda
from workers.tvm.linker import blame_the_host, link_shared
from workers.tvm.parsed_program_cache import instructions, parse_tvm_target
from workers.tvm.program_arguments import tensor_args
from workers.tvm.rebuild_schedule import rebuild
from workers.tvm.unrolled_size import SIZES, CandidateSizes, Watch

COMPARED_ACCESSES: Final = 200


def generate(module: Any, target: str, sizes: CandidateSizes | None = None) -> Any:
    """Compile a scheduled module to a library in memory.

    Raises BodyTooLarge compared with `sizes`; for CUDA KernelRefused, CannotLaunch and HostFault.
    """
    watches = [] if sizes is None else [Watch(sizes)]
    compiling_for, options = _compiled_for(target), {"tirx.disable_assert": True}
    try:
        if compiling_for.kind.name == "cuda":
            return compile_for_cuda(module, compiling_for, watches, **options).library
        return compiled(module, compiling_for, watches, **options)
    except RuntimeError as error:  # TVM's own, whatever the watch raised
        for watch in watches:
            if watch.refused is not None:
                raise watch.refused from error
        raise


@lru_cache(maxsize=8)
def _compiled_for(target: str) -> Any:
    parsed, attrs = parse_tvm_target(target), json.loads(target)
    if parsed.kind.name != "llvm" or "tag" in attrs:
        return parsed
    return tvm.target.Target(attrs | {"cl-opt": [f"-dag-maps-huge-region:uint={COMPARED_ACCESSES}"]})


class InvalidCandidate(InvalidRequest):
    """The decisions do not make a program; a postprocessor refused them."""


def build(
    tir: str, target: str, trace: str, decisions: Sequence[int], out_path: str, any_size: bool = False
) -> Library:
    """Compile a candidate to a library at `out_path`.

    Raises InvalidCandidate, TraceRefused, what `generate` raises and, without `any_size`, BodyTooLarge.
    """
    started_sec = time.perf_counter()
    instructions(tir, trace)  # says why a trace is refused; `rebuild` takes it for an invalid candidate
    schedule = rebuild(tir, target, trace, decisions)
    if schedule is None:
        raise InvalidCandidate
    # What MetaSchedule's own builder does: weights come in the layout that the schedule wants.
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
    sizes = None if any_size else SIZES[tir, target]
    _export(generate(module, target, sizes), out_path)
    elapsed_ms = (time.perf_counter() - started_sec) * 1000
    return Library(elapsed_ms, os.path.getsize(out_path), tensor_args(schedule.mod))


def _export(library: Any, out_path: str) -> None:
    try:
        if library.imports:
            library.export_library(out_path, fcompile=link_shared)
        else:
            # What `export_library` does for one host module, without its temporary directory.
            object_path = Path(out_path).with_suffix(".o")
            try:
                library.write_to_file(str(object_path))
                link_shared(out_path, [str(object_path)])
            finally:
                object_path.unlink(missing_ok=True)
    except RuntimeError:  # TVM's own error tells only in words that a file could not be written
        blame_the_host(Path(out_path).absolute().parent)
        raise
