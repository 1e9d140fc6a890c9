"""Views that need lowering or code generation; the compiler child computes them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from costmodels.views import CODE, EXECUTED, LAUNCH, STATEMENTS
from graphc.export.code_generation import compiled
from mallorn.core.errors import InvalidRequest
from searchers.space import Matrix
from workers.features.assembly_counts_view import describe_code
from workers.features.executed_instructions_view import describe_executed
from workers.interfaces.candidate_compiler import Candidates
from workers.tvm.kernel_figures import compile_for_cuda, describe_launch
from workers.tvm.parsed_program_cache import parse_tvm_target, tune_context
from workers.tvm.rebuild_schedule import rebuild

MOST, COLUMNS = STATEMENTS.shape
_EXTRACTOR: Final = PerStoreFeature()


def lowered(view: str, tir: str, target: str, candidates: Candidates) -> list[bytes | None]:
    """Return each candidate's row of the view as little-endian float32, or None if invalid."""
    describe = DESCRIBE[view]
    schedules = (rebuild(tir, target, trace, decisions) for trace, decisions in candidates)
    return [
        None if schedule is None else describe(tir, target, schedule).astype("<f4").tobytes()
        for schedule in schedules
    ]


def _statements(tir: str, target: str, schedule: Any) -> Matrix:
    (features,) = _EXTRACTOR.extract_from(tune_context(tir, target), [ms.MeasureCandidate(schedule, [])])
    rows = np.nan_to_num(features.numpy()[:MOST].astype(np.float32))
    table = np.zeros((MOST, COLUMNS), dtype=np.float32)
    table[: len(rows), 0] = 1
    table[: len(rows), 1:] = rows
    return table.reshape(1, -1)


def _code(tir: str, target: str, schedule: Any) -> Matrix:
    del tir
    return describe_code(*_generate_code(target, schedule))


def _executed(tir: str, target: str, schedule: Any) -> Matrix:
    return describe_executed(*_generate_code(target, schedule), _statements(tir, target, schedule))


def _launch(tir: str, target: str, schedule: Any) -> Matrix:
    del tir
    parsed = parse_tvm_target(target)
    if parsed.kind.name != "cuda":
        raise InvalidRequest("the view launch is of CUDA kernels", hint="choose a model of another view")
    return describe_launch(compile_for_cuda(_runnable(schedule), parsed), str(parsed.attrs["arch"]))


def _generate_code(target: str, schedule: Any) -> tuple[str, str]:
    """Return the target kind and the generated code: assembly, or PTX for CUDA."""
    parsed = parse_tvm_target(target)
    if parsed.kind.name == "cuda":
        return "cuda", "\n".join(code.ptx for code in compile_for_cuda(_runnable(schedule), parsed).codes)
    return parsed.kind.name, str(compiled(_runnable(schedule), parsed).inspect_source("asm"))


def _runnable(schedule: Any) -> Any:
    return RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)


DESCRIBE: Final[Mapping[str, Callable[[str, str, Any], Matrix]]] = {
    STATEMENTS.name: _statements,
    CODE.name: _code,
    EXECUTED.name: _executed,
    LAUNCH.name: _launch,
}
