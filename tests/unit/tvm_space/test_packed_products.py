"""Products with weights of few bits on a GPU: first guesses are right, and read the packed words alone."""

import pytest
import tvm

from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space
from tests.fixtures.cuda import needs_nvcc
from tests.fixtures.cuda_emulator.random_operands import run_on_random_operands
from tests.unit.tvm_space import cuda_programs

HERE = cuda_programs.target("sm_90a")
KINDS = {1: "vector product", 16: "tensor core product"}


def first_guess(tir: str) -> tuple[str, tvm.s_tir.Schedule]:
    """Return the kind and the schedule of what a job tries first."""
    sketches = {sketch.key: sketch for sketch in design_space(tir, HERE)}
    (guess,) = ranked(list(sketches.values()), nests(tir), assume_typical_gpu("sm_90a"), 1)
    sketch = sketches[guess.sketch]
    schedule = rebuild(tir, HERE, sketch.trace, guess.decisions)
    assert schedule is not None
    return str(sketch.facts.get("kind")), schedule


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", KINDS)
@needs_nvcc
def test_the_first_guess_is_right_and_reads_no_word_twice(rows: int, bits: int) -> None:
    tir = cuda_programs.packed_product(rows, 64, 128, bits)
    kind, schedule = first_guess(tir)
    assert kind == KINDS[rows]
    assert compile_for_cuda(schedule.mod, parse_tvm_target(HERE)).kernels
    report, error = run_on_random_operands(tir, schedule, HERE)
    assert not report.faults, report
    assert error <= 1e-4
    costs = report.global_sectors.values()
    assert sum(cost.actual for cost in costs) <= 1.5 * sum(cost.ideal for cost in costs)
