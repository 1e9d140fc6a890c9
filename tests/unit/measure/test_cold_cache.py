"""Which programs are timed with an empty L2 cache, and that such times do not mix with others."""

import pytest

from mallorn.core.job_options import EvaluatorOptions, JobOptions
from mallorn.core.targets import parse_target
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor
from mallorn.workers.measure.device_runs import must_flush_cache

GPU = parse_target({"kind": "cuda", "arch": "sm_90a"})
CPU = parse_target({"kind": "llvm", "num-cores": 2})
AUTO = EvaluatorOptions()


def product(rows: int, columns: int = 4096, terms: int = 4096) -> Arguments:
    shapes = (rows, terms), (columns, terms), (rows, columns)
    return Arguments(tuple(Tensor("TENSOR", "float16", shape) for shape in shapes), outputs=(2,))


@pytest.mark.parametrize(("rows", "empty"), [(1, True), (16, True), (1024, False), (4096, False)])
def test_a_product_that_reads_its_weights_once_finds_an_empty_cache(rows: int, empty: bool) -> None:
    assert must_flush_cache(AUTO, product(rows), GPU) is empty


@pytest.mark.parametrize("scales", ["float16", "float32"])
def test_weights_of_four_bits_are_read_from_memory_though_they_have_scales(scales: str) -> None:
    tensors = ("float16", (1, 4096)), ("uint32", (4096, 512)), (scales, (4096, 128)), ("float32", (1, 4096))
    arguments = Arguments(tuple(Tensor("TENSOR", dtype, shape) for dtype, shape in tensors), outputs=(3,))
    assert must_flush_cache(AUTO, arguments, GPU)


def test_a_large_output_is_not_what_a_program_reads() -> None:
    assert not must_flush_cache(AUTO, Arguments(product(1).args, outputs=(1,)), GPU)


@pytest.mark.parametrize(("flush_l2", "empty"), [("on", True), ("off", False)])
def test_who_says_so_decides_for_all_programs(flush_l2: str, empty: bool) -> None:
    evaluator = EvaluatorOptions.model_validate({"flush_l2": flush_l2})
    assert [must_flush_cache(evaluator, product(rows), GPU) for rows in (1, 4096)] == [empty] * 2


@pytest.mark.parametrize("flush_l2", ["auto", "on", "off"])
def test_on_a_cpu_nothing_is_emptied(flush_l2: str) -> None:
    assert not must_flush_cache(EvaluatorOptions.model_validate({"flush_l2": flush_l2}), product(1), CPU)


def test_times_compare_only_with_times_that_are_taken_alike() -> None:
    timings = [
        JobOptions.model_validate({"evaluator": {"flush_l2": each}}).timing(CPU) for each in ("on", "off")
    ]
    kept = {"number": 3, "repeat": 1, "min_repeat_ms": 100, "stopping": "racing", "cache": "warm"}
    assert JobOptions().timing(CPU) == kept, "stored times of CPUs stay comparable"
    assert kept not in timings
    assert timings[0] != timings[1]
