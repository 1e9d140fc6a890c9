"""Candidates and reference programs as shared libraries.

A candidate's machine code goes without what costs a compiler time and a kernel nothing:

- No checks of arguments, most of a small kernel's code: the runner makes them as they are wanted.
- LLVM's scheduler compares each access to memory with up to 1,000 before it in its block: most of
  the time of huge unrolled bodies. A fifth of it gives nearly the same order.
"""

import json
import os
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from functools import lru_cache
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Final

import tvm
import tvm_ffi
from tvm.ir.instrument import pass_instrument
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
from tvm.tirx import BufferStore

from graphc.export.code_generation import compiled
from mallorn.core.errors import InvalidRequest
from mallorn.core.outcomes import NOT_COMPILED
from workers.interfaces.candidate_compiler import Library
from workers.tvm.kernel_figures import compile_for_cuda
from workers.tvm.linker import blame_the_host, link_shared
from workers.tvm.parsed_program_cache import instructions, parse_tvm_target
from workers.tvm.program_arguments import tensor_args
from workers.tvm.rebuild_schedule import rebuild

COMPARED_ACCESSES: Final = 200
FEWEST: Final = 5  # candidates of a program, before which nothing is usual
KEPT: Final = 64  # all that came last count, those refused too: what a search turns to becomes usual
TOO_LARGE: Final = 8.0
CHEAP: Final = 200  # places; fewer are compiled in no time, however few are usual
UNROLLED: Final = "tirx.UnrollLoop"  # the pass after which a body has its size


class BodyTooLarge(InvalidRequest):
    """Unrolled, the candidate is many times as large as others of its program.

    Such a body takes a compiler seconds, and was never seen near its task's best.
    """


class CandidateSizes:
    """The sizes of a program's candidates, as this process has seen them."""

    def __init__(self) -> None:
        self._known: deque[int] = deque(maxlen=KEPT)

    def judge(self, size: int) -> None:
        """Raise BodyTooLarge for what is not worth compiling."""
        usual = median(self._known) if len(self._known) >= FEWEST else inf
        self._known.append(size)
        if size > max(CHEAP, TOO_LARGE * usual):
            raise BodyTooLarge(
                f"{NOT_COMPILED}unrolled it writes in {size} places, where {usual:g} are usual"
            )


SIZES: Final = defaultdict[tuple[str, str], CandidateSizes](CandidateSizes)  # by program and target


@pass_instrument
class Watch:
    """Ends the lowering of a body that is too large; `refused` says why."""

    def __init__(self, sizes: CandidateSizes) -> None:
        self._sizes = sizes
        self.refused: BodyTooLarge | None = None

    def run_after_pass(self, module: Any, info: Any) -> None:
        if str(info.name) != UNROLLED:
            return
        try:
            self._sizes.judge(size_of(module))
        except BodyTooLarge as refusal:
            self.refused = refusal
            raise


def size_of(module: Any) -> int:
    """How many stores a module has."""
    found: list[None] = []
    tvm_ffi.structural_walk(module, (BufferStore, lambda _: found.append(None)), order="pre")
    return len(found)


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
