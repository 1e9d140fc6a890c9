"""Bytes and products in the models of GPU kernels are those that the emulator counts."""

from math import prod
from typing import Any

import numpy as np
import pytest

from mallorn.kinds.cuda.times.kernel_time import KernelWork
from mallorn.kinds.cuda.times.sketch_model import SketchModel
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.roller.rank_candidates import sketch_time_model
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space
from tests.fixtures.cuda_emulator import Report, run_kernel
from tests.unit.tvm_space.cuda_programs import product, product_with_vector, softmax, sums, target

HERE = target("sm_90a")
H100 = assume_typical_gpu("sm_90a")
_FIRST, _EVERY, _MOST = 24, 8, 3  # of a sketch's best candidates, which are run


def counted(tir: str, kind: str, **facts: Any) -> list[tuple[KernelWork, Report]]:
    """The kernels of some good candidates of a kind's sketches as modelled, and as run."""
    parameters = parse_module(tir)["main"].params
    shapes = [(tuple(map(int, each.shape)), str(each.dtype)) for each in parameters]
    pairs = []
    for sketch in design_space(tir, HERE):
        if sketch.facts.get("kind") != kind or not facts.items() <= dict(sketch.facts).items():
            continue
        model = sketch_time_model(sketch, nests(tir), H100)
        assert isinstance(model, SketchModel)
        rows, _ = model.best(_FIRST)
        schedules = ((row, rebuild(tir, HERE, sketch.trace, tuple(row.tolist()))) for row in rows[::_EVERY])
        for row, schedule in [pair for pair in schedules if pair[1] is not None][:_MOST]:
            report = run_kernel(schedule, HERE, [np.ones(shape, dtype) for shape, dtype in shapes])
            pairs.append((model.kernel_of(row[None]), report))
    assert pairs
    return pairs


def total(kernel: KernelWork, column: Any) -> float:
    return float(kernel.blocks[0] * np.ravel(column)[0])


def sector_bytes(report: Report) -> int:
    return 32 * sum(cost.actual for cost in report.global_sectors.values())


def test_a_product_on_tensor_cores_moves_what_its_model_says() -> None:
    for kernel, report in counted(
        product(256, 256, 128, "float16", "float32"), "tensor core product", permuted=True
    ):
        assert total(kernel, kernel.l2_bytes) == pytest.approx(sector_bytes(report), rel=0.1)
        shared_bytes = 128 * sum(cost.actual for cost in report.bank_conflicts.values())
        assert total(kernel, kernel.shared_traffic) == pytest.approx(shared_bytes, rel=0.1)
        assert total(kernel, kernel.operations) == 2 * 16 * 8 * 16 * report.instructions["mma"]


def test_a_product_on_cuda_cores_moves_what_its_model_says() -> None:
    size = (128, 128, 128)
    for kernel, report in counted(product(*size), "cuda core product", stages=4):
        assert total(kernel, kernel.l2_bytes) == pytest.approx(sector_bytes(report), rel=0.1)
        if kernel.threads[0] % 32 == 0:
            shared_bytes = 128 * sum(cost.actual for cost in report.bank_conflicts.values())
            assert total(kernel, kernel.shared_traffic) == pytest.approx(shared_bytes, rel=0.1)
            assert total(kernel, kernel.operations) == 2 * prod(size)


@pytest.mark.parametrize(
    ("kind", "tir", "facts"),
    [
        ("vector product", product_with_vector(128, 1024, "float16"), {"is_depth_innermost": True}),
        ("row reduction", sums(64, 512, of_rows=True), {"is_depth_innermost": True}),
        ("row reduction", softmax(32, 512), {"is_kept": True}),
    ],
    ids=["product with a vector", "sums of rows", "softmax"],
)
def test_a_kernel_that_reads_once_moves_what_its_model_says(
    kind: str, tir: str, facts: dict[str, bool]
) -> None:
    for kernel, report in counted(tir, kind, **facts):
        assert total(kernel, kernel.l2_bytes) == pytest.approx(sector_bytes(report), rel=0.1)
