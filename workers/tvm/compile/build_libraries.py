"""Compile candidates to shared libraries.

Two costs of compilation that make no candidate faster are avoided:

- Argument checks, most of a small kernel's code, are omitted: the runner passes valid ones.
- LLVM's scheduler compares each memory access with up to 1,000 earlier ones in its block,
  which is most of the compile time of huge unrolled bodies. A limit of 200 gives nearly the
  same instruction order.
"""

import json
import os
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import asdict
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

from mallorn.core.errors import InvalidRequest
from mallorn.core.outcomes import NOT_COMPILED
from mallorn.core.targets import parse_target
from mallorn.workers.host.linker import link_shared, linker_for, raise_if_disk_unusable
from mallorn.workers.interfaces.candidate_compiler import Library
from mallorn.workers.tvm.programs.compiler_kind import compiler_kind
from mallorn.workers.tvm.programs.parsed_program_cache import instructions, parse_tvm_target
from mallorn.workers.tvm.programs.program_blocks import tensor_args
from mallorn.workers.tvm.space.rebuild_schedule import rebuild

COMPARED_ACCESSES: Final = 200
FEWEST: Final = 5  # candidates of a program from which a median size is known
KEPT: Final = 64  # latest candidates in the median, including refused ones
TOO_LARGE: Final = 8.0  # times the median
CHEAP: Final = 200  # stores; smaller bodies are never refused
UNROLLED: Final = "tirx.UnrollLoop"  # the pass after which a body has its size


class BodyTooLarge(InvalidRequest):
    """Unrolled, the candidate is many times as large as others of its program.

    Compiling such a body takes seconds, and none was ever close to its task's best.
    """


class InvalidCandidate(InvalidRequest):
    """The decisions do not make a program; a postprocessor refused them."""


class CandidateSizes:
    """Sizes (numbers of stores) of a program's latest candidates, to detect huge ones."""

    def __init__(self) -> None:
        self._latest: deque[int] = deque(maxlen=KEPT)

    def check_size(self, size: int) -> None:
        """Record a candidate's size; raise BodyTooLarge if it is far above the median."""
        usual = median(self._latest) if len(self._latest) >= FEWEST else inf
        self._latest.append(size)
        if size > max(CHEAP, TOO_LARGE * usual):
            raise BodyTooLarge(f"{NOT_COMPILED}the unrolled code has {size} stores, the median {usual:g}")


SIZES: Final = defaultdict[tuple[str, str], CandidateSizes](CandidateSizes)  # by program and target


@pass_instrument
class Watch:
    """Pass instrument that refuses too large unrolled bodies; `refused` has the error."""

    def __init__(self, sizes: CandidateSizes) -> None:
        self._sizes = sizes
        self.refused: BodyTooLarge | None = None

    def run_after_pass(self, module: Any, info: Any) -> None:
        if str(info.name) != UNROLLED:
            return
        stores: list[None] = []
        tvm_ffi.structural_walk(module, (BufferStore, lambda _: stores.append(None)), order="pre")
        try:
            self._sizes.check_size(len(stores))
        except BodyTooLarge as refusal:
            self.refused = refusal
            raise


def compile_module(
    module: Any, target: str, sizes: CandidateSizes | None = None
) -> tuple[Any, Sequence[Any]]:
    """Compile a scheduled module; return the library, and figures of its kernels on an
    accelerator. Raises BodyTooLarge if `sizes` rejects it, and what its kind of hardware raises."""
    watches = [] if sizes is None else [Watch(sizes)]
    tvm_target, options = _codegen_target(target), {"tirx.disable_assert": True}
    try:
        return compiler_kind(target).compile_module(module, tvm_target, watches, **options)
    except RuntimeError as error:  # TVM replaces the error that the watch raised by its own
        for watch in watches:
            if watch.refused is not None:
                raise watch.refused from error
        raise


@lru_cache(maxsize=8)
def _codegen_target(target: str) -> Any:
    tvm_target, attrs = parse_tvm_target(target), json.loads(target)
    if tvm_target.kind.name != "llvm" or "tag" in attrs:
        return tvm_target
    return tvm.target.Target(attrs | {"cl-opt": [f"-dag-maps-huge-region:uint={COMPARED_ACCESSES}"]})


def build(
    tir: str, target: str, trace: str, decisions: Sequence[int], out_path: str, any_size: bool = False
) -> Library:
    """Compile a candidate to a library at `out_path`. Raises InvalidCandidate, TraceRefused
    and the errors of `generate`. `any_size` turns the check for BodyTooLarge off."""
    started_sec = time.perf_counter()
    instructions(tir, trace)  # raises TraceRefused, for which `rebuild` only returns None
    schedule = rebuild(tir, target, trace, decisions)
    if schedule is None:
        raise InvalidCandidate
    # As MetaSchedule's builder does: callers pass weights in the layout of the schedule.
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
    sizes = None if any_size else SIZES[tir, target]
    library, kernels = compile_module(module, target, sizes)
    instruction_set = parse_target(target).toolchain
    try:
        if library.imports:
            library.export_library(out_path, fcompile=linker_for(instruction_set))
        else:
            # As `export_library` does for one host module, but without a temporary directory.
            object_path = Path(out_path).with_suffix(".o")
            try:
                library.write_to_file(str(object_path))
                link_shared(out_path, [str(object_path)], instruction_set=instruction_set)
            finally:
                object_path.unlink(missing_ok=True)
    except RuntimeError:  # TVM has no error type of its own for files that cannot be written
        raise_if_disk_unusable(Path(out_path).absolute().parent)
        raise
    elapsed_ms = (time.perf_counter() - started_sec) * 1000
    args, figures = tensor_args(schedule.mod), tuple(asdict(kernel) for kernel in kernels)
    return Library(elapsed_ms, os.path.getsize(out_path), args, figures)
