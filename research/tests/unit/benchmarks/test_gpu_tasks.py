"""Tasks of the GPU benchmark: programs, right results, first guesses of the kinds that they should have."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import tvm

from benchmarks.gpu.kernel_batch import call_of, right_result
from benchmarks.gpu.programs import module_of
from benchmarks.gpu.recording import model_task
from benchmarks.gpu.tasks import (
    BY_NAME,
    CODED,
    GPU,
    PRODUCT,
    REHEARSAL,
    SEARCHED,
    SEARCHED_REHEARSAL,
    WGMMA_TASK,
    Task,
    largest_error,
    multiplications,
    operand_bytes,
)
from mallorn.core.targets import Target
from mallorn.graphc.export.output_errors import relative_error
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.workers.device.random_and_saved_arrays import draw_arguments
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.space.rebuild_schedule import validate
from mallorn.workers.tvm.space.sketches import design_space
from tests.fixtures.cuda import cuda_target

TARGET: Final = cuda_target("sm_90a")
TENSOR_CORES, WINDOW = "tensor core product", "window"
# The kind of each searched task's first guess.
KINDS: Final = {
    "product 4096 transposed fp16 sums fp32": TENSOR_CORES,
    "product with a vector 8192x8192 int4 weights": "vector product",
    "attention 12x128x64 fp16 in one kernel": "short attention",
    "product 512 bias ReLU fp16 sums fp32": TENSOR_CORES,
    "product 1000x777x1234 fp32": "cuda core product",
    "product with a vector 8192x8192 fp16 sums fp32": "vector product",
    "depthwise 1x56x56x144 fp16 sums fp32": WINDOW,
    "convolution 8x28x28x128 to 128 fp16 sums fp32": TENSOR_CORES,
    "layer norm 4096x768 fp32": "row reduction",
    "product 2048 tf32": TENSOR_CORES,
    "product 16x4096x4096 fp16 sums fp32": TENSOR_CORES,
    "product 2048 transposed int8 sums int32": TENSOR_CORES,
}


@pytest.mark.parametrize("task", [*REHEARSAL, *SEARCHED_REHEARSAL], ids=lambda task: task.name)
def test_a_program_computes_the_right_result(task: Task, tmp_path: Path) -> None:
    check = call_of(task, tmp_path, Target('{"kind":"llvm"}'))["check"]
    values = draw_arguments(check["args"], check["seed"])
    library, tensors = tvm.compile(module_of(task), "llvm"), [tvm.runtime.tensor(each) for each in values]
    library["main"](*tensors)
    error = relative_error(tensors[-1].numpy(), right_result(task, values[:-1]))
    assert error <= largest_error(task)


def test_words_of_coded_weights_are_random_in_all_bits(tmp_path: Path) -> None:
    task = next(task for task in REHEARSAL if "int4" in task.name)
    call = call_of(task, tmp_path, Target(TARGET))
    for args in (call["args"], call["check"]["args"]):
        dtype, shape, low, high = args[1]
        assert (dtype, tuple(shape), low, high) == ("uint32", (64, 12), 0, 1 << 32)


def test_products_with_a_vector_are_timed_with_an_empty_cache(tmp_path: Path) -> None:
    def is_cold(task: Task) -> bool:
        return bool(call_of(task, tmp_path, Target(TARGET))["cold"])

    assert is_cold(Task("vector", PRODUCT, (1, 512, 512), "float16"))
    assert is_cold(Task("vector int4", CODED, (1, 512, 512, 4), "float16"))
    assert not is_cold(Task("product", PRODUCT, (512, 512, 512), "float16"))


def test_twelve_tasks_are_searched_and_part_1_times_their_kernels() -> None:
    assert [task.name for task in SEARCHED] == list(KINDS)
    assert set(SEARCHED) <= set(GPU)
    assert WGMMA_TASK in KINDS
    assert all(BY_NAME[task.name] is task for task in GPU), "names are unique"


def test_a_kernel_reads_and_writes_each_operand_once() -> None:
    task = BY_NAME["product with a vector 8192x8192 int4 weights"]
    assert operand_bytes(task) == 2 * 8192 + 8192 * 8192 // 2 + 2 * 8192 * 256 + 4 * 8192
    assert multiplications(task) == 8192**2


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_the_first_guess_of_a_searched_task_is_valid_and_of_its_kind(name: str) -> None:
    task = model_task(name)
    compiler: Any = SimpleNamespace(nests=nests, validate=validate)
    program: Any = SimpleNamespace(tir=task.tir)
    space = TvmSpace(design_space(task.tir, TARGET), program, Target(TARGET), (), compiler)
    first, *_ = ranked(space.sketches, space.nests, space.machine, 1)
    assert space.valid([first]) == [True]
    assert space.by_key[first.sketch].facts.get("kind") == KINDS[name]
