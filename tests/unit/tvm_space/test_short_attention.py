"""Attention over few keys in one kernel: right, free of races, and stored as other tools replay it."""

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda
from mallorn.kinds.cuda.compiler.cuda_rules import can_launch, dlight_schedule
from mallorn.kinds.cuda.sketches.short_attention import KIND, schedules
from mallorn.kinds.cuda.times.products import ShortAttentionKernel
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.roller.rank_candidates import sketch_time_model
from mallorn.searchers.space import Sketch
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module, parse_tvm_target
from mallorn.workers.tvm.programs.program_blocks import blocks_of, operator_of
from mallorn.workers.tvm.space.rebuild_schedule import rebuild, validate
from tests.fixtures.cuda_emulator import Report, run_kernel
from tests.unit.tvm_space import cuda_sketches
from tests.unit.tvm_space.cuda_programs import (
    ARCHS,
    attention_scores,
    product,
    short_attention,
    softmax,
    target,
)
from tests.unit.tvm_space.cuda_sketches import HERE, assert_replayed

#: Tokens, width of a head, type, and whether there is a mask.
CASES = {
    "few": (16, 32, "float16", False),
    "odd": (77, 64, "float16", True),
    "even, of no whole fragments": (50, 32, "float16", False),
    "bf16": (48, 32, "bfloat16", True),
    "whole": (128, 64, "float16", True),
}
ERRORS = {"float16": 1e-3, "bfloat16": 8e-3}  # beside the largest value: weights and results are rounded
_TYPES: dict[str, Any] = {"bfloat16": ml_dtypes.bfloat16, "float16": "float16"}


@lru_cache
def tir_of(name: str) -> str:
    tokens, width, dtype, masked = CASES[name]
    return short_attention(tokens, width, dtype, masked=masked)


@lru_cache
def sketches_of(name: str) -> list[Sketch]:
    return cuda_sketches.sketches_of(schedules, tir_of(name))


def candidates(name: str, sketch: Sketch, count: int, arch: str = HERE) -> list[Any]:
    """Random candidates; None for those that are invalid."""
    drawn = sketch.candidates(SketchRules(sketch).sample(np.random.default_rng(0), count).tolist())
    return [rebuild(tir_of(name), arch, sketch.trace, candidate.decisions) for candidate in drawn]


def run(name: str, schedule: Any) -> tuple[Report, float]:
    """Run a candidate on random numbers; return the report, and its error beside the largest value."""
    tokens, width, dtype, masked = CASES[name]
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, tokens, 2, width)).astype(_TYPES[dtype]) for _ in range(3))
    mask = np.where(rng.random((1, 1, 1, tokens)) < 0.2, -1e4, 0).astype("float32")
    result = np.zeros_like(q)
    wide = [array.astype("float64") for array in (q, k, v)]
    scores = np.einsum("bihd,bjhd->bhij", *wide[:2]) / width**0.5 + (mask if masked else 0)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = np.einsum("bhij,bjhd->bihd", weights / weights.sum(axis=-1, keepdims=True), wide[2])
    report = run_kernel(schedule, HERE, [q, k, v, *([mask] if masked else []), result])
    return report, float(np.abs(result.astype("float64") - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("name", CASES)
def test_a_candidate_is_right_without_races(name: str) -> None:
    sketch = sketches_of(name)[list(CASES).index(name) % 2]
    built = candidates(name, sketch, 10)
    valid = [schedule for schedule in built if schedule is not None]
    assert len(valid) * 5 >= len(built)
    report, error = run(name, valid[0])
    assert not report.faults, report
    assert error <= ERRORS[CASES[name][2]]
    assert report.instructions["mma"] > 0
    assert report.instructions["unfinished copy"] == 0
    assert report.bank_conflicts["ldmatrix"].ratio == 1
    assert report.bank_conflicts["shared load"].ratio <= 1.5
    assert report.bank_conflicts["shared store"].ratio <= 2
    assert report.global_sectors["cp.async from global"].ratio == 1
    assert report.global_sectors["global store"].ratio == 1


def test_sketches_of_different_sizes_are_the_same() -> None:
    assert [s.key for s in sketches_of("odd")] == [s.key for s in sketches_of("whole")]


def test_a_sketch_names_each_of_its_choices() -> None:
    for sketch in sketches_of("whole"):
        assert sketch.facts["kind"] == KIND
        assert len(sketch.facts["choices"]) == len(sketch.choices)


def test_the_best_candidates_of_the_model_are_valid() -> None:
    tir = tir_of("whole")
    for sketch in sketches_of("whole"):
        model = sketch_time_model(sketch, nests(tir), assume_typical_gpu("sm_90a"))
        assert isinstance(model, ShortAttentionKernel)
        rows, _ = model.best(3)
        traces = [(sketch.trace, each.decisions) for each in sketch.candidates(rows.tolist())]
        assert validate(tir, HERE, traces) == [True] * 3


def test_other_programs_and_older_gpus_have_no_such_sketches() -> None:
    for tir in (softmax(16, 64), product(64, 64, 64, "float16"), attention_scores(2, 32, 32, "float16")):
        assert not list(schedules(parse_module(tir), parse_tvm_target(HERE)))
    turing = parse_tvm_target(target("sm_75"))
    assert not list(schedules(parse_module(short_attention(64, 32)), turing))


def test_the_program_is_called_attention_and_has_a_default_schedule() -> None:
    module = parse_module(short_attention(77, 64, masked=True))
    assert operator_of(blocks_of(module)) == "attention"
    schedule = dlight_schedule(module, parse_tvm_target(HERE))
    assert schedule is not None
    assert can_launch(schedule.mod, parse_tvm_target(HERE))


def test_tvm_applies_a_record() -> None:
    sketch = sketches_of("whole")[0]
    (candidate,) = sketch.candidates(SketchRules(sketch).sample(np.random.default_rng(0), 1).tolist())
    assert_replayed(tir_of("whole"), sketch, candidate.decisions)


OTHER_ARCHS = [pytest.param(arch, marks=pytest.mark.long) for arch in ARCHS[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize("arch", [*OTHER_ARCHS, ARCHS[-1]])
def test_nvcc_compiles_a_candidate_without_spills(arch: str) -> None:
    here, sketch = target(arch), sketches_of("whole")[0]
    valid = [schedule for schedule in candidates("whole", sketch, 8, here) if schedule is not None]
    (kernel,) = compile_for_cuda(valid[0].mod, parse_tvm_target(here)).kernels
    assert (kernel.spill_bytes, kernel.stack_bytes) == (0, 0)
