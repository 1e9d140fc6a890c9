"""Where a model's time goes, in figures and in words."""

from dataclasses import replace

import pytest

from mallorn.cli.profile_kernels import Kernel, describe_copy, describe_kernels, summary
from mallorn.core.values.graph_report import RemainingCopy
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.workers.interfaces.model_compiler import ModelTask
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor

MACHINE = assume_typical_cpu(cores=2, lanes=16).model_copy(
    update={"gflops": {"float32": 500.0, "bfloat16": 1000.0}, "memory_gbytes_per_sec": 40.0}
)
# 2 * 64 * 512 * 512 floating-point operations; 64 x 512 in and out and 512 x 512 weights, of four bytes.
TENSORS = [(64, 512), (512, 512), (64, 512)]
DENSE = ModelTask(
    name="dense",
    weight=3,
    key="",
    op="matmul",
    structure="",
    flops=33_554_432.0,
    tir="",
    args=Arguments(tuple(Tensor("TENSOR", "float32", shape) for shape in TENSORS)),
    extents=(),
)


def kernels(**times_us: float) -> list[Kernel]:
    return describe_kernels(times_us, {"dense": DENSE}, MACHINE)


def test_the_longest_kernel_comes_first_with_its_share() -> None:
    first, second = kernels(softmax=25.0, dense=75.0)
    assert (first.kernel, first.share) == ("dense", 0.75)
    assert (second.kernel, second.share) == ("softmax", 0.25)


def test_rates_count_every_call_of_a_kernel() -> None:
    (dense,) = kernels(dense=300.0)
    assert dense.gflops == pytest.approx(3 * 33_554_432 / 300e-6 / 1e9)
    assert dense.floor_us == pytest.approx(3 * 33_554_432 / 500e9 * 1e6)
    assert dense.gbytes_per_sec == pytest.approx(3 * 4 * (2 * 64 * 512 + 512 * 512) / 300e-6 / 1e9)


def test_a_kernel_of_narrow_numbers_has_their_peak() -> None:
    narrow = [Tensor("TENSOR", dtype, (64, 64)) for dtype in ("bfloat16", "bfloat16", "float32")]
    (dense,) = describe_kernels(
        {"dense": 300.0}, {"dense": replace(DENSE, args=Arguments(tuple(narrow)))}, MACHINE
    )
    assert dense.floor_us == pytest.approx(3 * 33_554_432 / 1000e9 * 1e6)
    assert dense.gbytes_per_sec == pytest.approx(3 * (2 + 2 + 4) * 64 * 64 / 300e-6 / 1e9)


def test_a_kernel_that_no_task_describes_has_a_time_alone() -> None:
    (softmax,) = kernels(softmax=25.0)
    assert softmax.time_us == 25.0
    assert softmax.gflops is softmax.floor_us is softmax.calls is None


def test_without_a_peak_no_floor_is_claimed() -> None:
    (dense,) = describe_kernels({"dense": 300.0}, {"dense": DENSE}, None)
    assert dense.floor_us is None
    assert len(summary(310.0, [dense], None)) == 1


def test_the_summary_says_how_far_the_arithmetic_alone_would_go() -> None:
    lines = summary(330.0, kernels(dense=300.0), MACHINE)
    assert lines == [
        "the model takes 330.0 us, its kernels 300.0 us of it as they were watched",
        "this machine allows 500 GFLOP/s, and reads memory at 40 GB/s",
        "the model's arithmetic alone would take 201.3 us at that speed",
    ]


def test_a_copy_tells_who_asked_for_it_and_how_fast_it_is() -> None:
    left = [
        RemainingCopy(function="dense", kind="transpose", required_by="softmax"),
        RemainingCopy(function="reshape", kind="copy", required_by="the output"),
    ]
    dense, reshape, other = kernels(dense=3000.0, reshape=20.0, other=10.0)
    assert list(describe_copy(dense, left, MACHINE)) == [
        "a copy: transpose asked for by softmax, 1.31 GB/s of 40"
    ]
    assert list(describe_copy(reshape, left, MACHINE)) == ["a copy asked for by the output"]
    assert list(describe_copy(other, left, MACHINE)) == []
