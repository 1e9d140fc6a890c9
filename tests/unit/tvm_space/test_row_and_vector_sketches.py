"""Sketches of vector products and row reductions: right, without races, and valid for most decisions."""

import json
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir.schedule import Trace

from mallorn.core.values.candidate import SKETCH_FACTS
from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda
from mallorn.kinds.cuda.compiler.cuda_rules import can_launch
from mallorn.kinds.cuda.sketches import row_reductions, thread_sums
from mallorn.searchers.decision_space import SketchRules
from mallorn.workers.tvm.programs.parsed_program_cache import new_schedule, parse_module, parse_tvm_target
from mallorn.workers.tvm.programs.program_blocks import arguments
from mallorn.workers.tvm.space.rebuild_schedule import validate
from mallorn.workers.tvm.space.sketches import design_space
from tests.fixtures.cuda_emulator import run_kernel
from tests.unit.tvm_space import cuda_programs
from tests.unit.tvm_space.cuda_sketches import HERE, assert_replayed

KINDS = {thread_sums.KIND, row_reductions.KIND}
CASES = {
    "vector": (thread_sums, cuda_programs.product_with_vector(96, 136, "float16")),
    "narrow columns": (thread_sums, cuda_programs.product(3, 40, 64, "float32")),
    "softmax": (row_reductions, cuda_programs.softmax(12, 136)),
    "softmax of odd rows": (row_reductions, cuda_programs.softmax(7, 101)),
    "layer norm": (row_reductions, cuda_programs.layer_norm(10, 192)),
    "sums of rows": (row_reductions, cuda_programs.sums(12, 300, of_rows=True)),
    "sums of columns": (row_reductions, cuda_programs.sums(150, 72, of_rows=False)),
    "means": (row_reductions, cuda_programs.means_of_images(20, 7)),
}


def drawn(tir: str, sketch: Any, seed: int) -> Any:
    schedule = new_schedule(tir, seed)
    Trace(list(sketch.trace.insts), {}).apply_to_schedule(schedule, remove_postproc=False)
    return schedule


@pytest.mark.parametrize("name", CASES)
def test_a_candidate_computes_the_program_without_faults(name: str) -> None:
    kind, tir = CASES[name]
    module, generator = parse_module(tir), np.random.default_rng(0)
    inputs = [
        generator.standard_normal(tensor.shape).astype(tensor.dtype) for tensor in arguments(module).args
    ]
    wanted = [tvm.runtime.tensor(array) for array in inputs]
    tvm.compile(module, target="llvm")(*wanted)
    sketches = list(kind.schedules(module, parse_tvm_target(HERE)))
    assert sketches
    for sketch in sketches[:: len(sketches) - 1 or 1]:
        candidates = [drawn(tir, sketch, seed) for seed in range(1, 7)]
        valid = [s for s in candidates if can_launch(s.mod, parse_tvm_target(HERE))]
        assert len(valid) * 3 >= len(candidates)
        found = [array.copy() for array in inputs]
        report = run_kernel(valid[-1], HERE, found)
        assert not report.faults, report
        for place in arguments(module).outputs:
            np.testing.assert_allclose(found[place], wanted[place].numpy(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", CASES)
def test_a_sketch_names_each_of_its_choices(name: str) -> None:
    kind, tir = CASES[name]
    for sketch in kind.schedules(parse_module(tir), parse_tvm_target(HERE)):
        facts = json.loads(sketch.get(sketch.get_sblock("root")).annotations[SKETCH_FACTS])
        assert len(facts["choices"]) == len(sketch.trace.decisions)


def test_other_programs_have_no_such_sketches() -> None:
    for program in (cuda_programs.product(64, 64, 64), cuda_programs.transpose(32, 64)):
        for kind in (thread_sums, row_reductions):
            assert not list(kind.schedules(parse_module(program), parse_tvm_target(HERE)))


@pytest.mark.parametrize("name", ["vector", "softmax"])
def test_a_record_of_a_candidate_is_replayed_by_tvm(name: str) -> None:
    _, tir = CASES[name]
    sketches = [sketch for sketch in design_space(tir, HERE) if sketch.facts.get("kind") in KINDS]
    assert sketches
    for sketch in sketches:
        drawn_rows = SketchRules(sketch).sample(np.random.default_rng(0), 12).tolist()
        candidates = [(sketch.trace, candidate.decisions) for candidate in sketch.candidates(drawn_rows)]
        valid = [
            pair
            for pair, is_valid in zip(candidates, validate(tir, HERE, candidates), strict=True)
            if is_valid
        ]
        assert len(valid) * 3 >= len(candidates)
        assert_replayed(tir, sketch, valid[0][1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fp16 product with a vector", "softmax", "sums of columns"])
def test_kernels_fit_registers(name: str) -> None:
    tir, parsed = cuda_programs.PROGRAMS[name](), parse_tvm_target(HERE)
    kind = thread_sums if "vector" in name else row_reductions
    for sketch in kind.schedules(parse_module(tir), parsed):
        valid = (s for s in (drawn(tir, sketch, seed) for seed in range(1, 20)) if can_launch(s.mod, parsed))
        (kernel,) = compile_for_cuda(next(valid).mod, parsed).kernels
        assert kernel.spill_bytes == 0
