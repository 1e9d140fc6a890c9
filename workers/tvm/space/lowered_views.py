"""Features of candidates that need lowering or code generation, in the compiler child.

Each set of features (a view) is registered in `mallorn/core/registry.py`.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from mallorn.core.registry import resolve
from mallorn.costmodels.views import STATEMENTS
from mallorn.searchers.space import Matrix
from mallorn.workers.features.assembly_views import code_features, executed_features
from mallorn.workers.interfaces.candidate_compiler import Candidates
from mallorn.workers.tvm.programs.compiler_kind import compiler_kind
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target, tune_context
from mallorn.workers.tvm.space.rebuild_schedule import rebuild

MOST, COLUMNS = STATEMENTS.shape
_EXTRACTOR: Final = PerStoreFeature()


def compute_lowered_features(view: str, tir: str, target: str, candidates: Candidates) -> list[bytes | None]:
    describe: Callable[[str, str, Any], Matrix] = resolve("lowered_features", view)
    schedules = (rebuild(tir, target, trace, decisions) for trace, decisions in candidates)
    return [
        None if schedule is None else describe(tir, target, schedule).astype("<f4").tobytes()
        for schedule in schedules
    ]


def describe_statements(tir: str, target: str, schedule: Any) -> Matrix:
    """Return the features `statements`: those that MetaSchedule extracts for each store."""
    (features,) = _EXTRACTOR.extract_from(tune_context(tir, target), [ms.MeasureCandidate(schedule, [])])
    rows = np.nan_to_num(features.numpy()[:MOST].astype(np.float32))
    table = np.zeros((MOST, COLUMNS), dtype=np.float32)
    table[: len(rows), 0] = 1
    table[: len(rows), 1:] = rows
    return table.reshape(1, -1)


def describe_code(_tir: str, target: str, schedule: Any) -> Matrix:
    """Return the features `code`: counts of the instructions in the generated code."""
    return code_features(parse_tvm_target(target).kind.name, _generated_code(target, schedule))


def describe_executed(tir: str, target: str, schedule: Any) -> Matrix:
    """Return the features `executed`: estimated instruction counts and cache traffic."""
    statements = describe_statements(tir, target, schedule)
    code = _generated_code(target, schedule)
    return executed_features(parse_tvm_target(target).kind.name, code, statements)


def _generated_code(target: str, schedule: Any) -> str:
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
    return compiler_kind(target).generated_code(module, parse_tvm_target(target))
