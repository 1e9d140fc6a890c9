"""Products on CUDA cores: right, free of races, and without wasted accesses, whatever the tiles."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from tvm import te

from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda
from mallorn.kinds.cuda.sketches.cuda_core_products import KIND, VARIANTS, schedules
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.roller.rank_candidates import sketch_time_model
from mallorn.searchers.space import Sketch
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module, parse_tvm_target
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space
from tests.fixtures.cuda_emulator.random_operands import run_on_random_operands
from tests.unit.tvm_space import cuda_sketches
from tests.unit.tvm_space.cuda_programs import ARCHS, attention_scores, convolution, product, target
from tests.unit.tvm_space.cuda_sketches import HERE
from tests.unit.tvm_space.programs import text_of

H100 = assume_typical_gpu("sm_90a")


def transposed(m: int, n: int, k: int, *, left: bool, right: bool) -> str:
    """A product with a bias, whose operands are stored along the sum or across it."""
    a = te.placeholder((k, m) if left else (m, k), name="a")
    b = te.placeholder((n, k) if right else (k, n), name="b")
    r, bias = te.reduce_axis((0, k), "r"), te.placeholder((n,), name="bias")
    c = te.compute(
        (m, n), lambda i, j: te.sum((a[r, i] if left else a[i, r]) * (b[j, r] if right else b[r, j]), r), "c"
    )
    return text_of(a, b, bias, te.compute((m, n), lambda i, j: c[i, j] + bias[j], "o"))


def grouped(channels: int, size: int, out: int, groups: int, *, channels_last: bool) -> str:
    """A 3x3 convolution whose outputs read the channels of their own group."""
    own_in, own_out = channels // groups, out // groups
    inner = size + 2
    x = te.placeholder(
        (1, inner, inner, channels) if channels_last else (1, channels, inner, inner), name="x"
    )
    w = te.placeholder((3, 3, own_in, out) if channels_last else (out, own_in, 3, 3), name="w")
    rc, ry, rx = (te.reduce_axis((0, extent)) for extent in (own_in, 3, 3))

    def last(b: Any, i: Any, j: Any, o: Any) -> Any:
        return te.sum(x[b, i + ry, j + rx, o // own_out * own_in + rc] * w[ry, rx, rc, o], [ry, rx, rc])

    def first(b: Any, o: Any, i: Any, j: Any) -> Any:
        return te.sum(x[b, o // own_out * own_in + rc, i + ry, j + rx] * w[o, rc, ry, rx], [rc, ry, rx])

    shape = (1, size, size, out) if channels_last else (1, out, size, size)
    return text_of(x, w, te.compute(shape, last if channels_last else first, "y"))


PROGRAMS = {
    "aligned": lambda: product(128, 64, 64),
    "the right operand along the sum": lambda: transposed(64, 64, 64, left=False, right=True),
    "the left operand across the sum": lambda: transposed(64, 64, 64, left=True, right=False),
    "prime sizes": lambda: product(37, 41, 31),
    "narrow": lambda: product(3, 128, 256),
    "epilogue": lambda: product(96, 76, 80, relu=True),
    "batches": lambda: attention_scores(3, 48, 32, "float32"),
    "convolution, channels first": lambda: convolution(16, 7, 32, 3),
    "groups, channels first": lambda: grouped(16, 6, 32, 4, channels_last=False),
    "groups, channels last": lambda: grouped(32, 6, 64, 2, channels_last=True),
    "fp64": lambda: product(32, 48, 32, "float64"),
    "int8": lambda: product(64, 64, 64, "int8", "int32"),
}
ERRORS = {"float32": 2e-6, "float64": 1e-14, "int32": 0}


@lru_cache
def tir_of(name: str) -> str:
    return PROGRAMS[name]()


def sketches_of(tir: str, target_text: str = HERE) -> list[Sketch]:
    return cuda_sketches.sketches_of(schedules, tir, target_text)


def drawn(tir: str, sketch: Sketch, count: int) -> list[Any]:
    """Valid random candidates of a sketch."""
    rows = SketchRules(sketch).sample(np.random.default_rng(3), 48).tolist()
    schedules = (rebuild(tir, HERE, sketch.trace, c.decisions) for c in sketch.candidates(rows))
    return list(islice(filter(None, schedules), count))


def guesses(tir: str, sketch: Sketch, count: int) -> Iterator[Any]:
    """The model's best candidates, each of which must be valid."""
    model = sketch_time_model(sketch, nests(tir), H100)
    assert model is not None
    for row in model.best(count)[0]:
        schedule = rebuild(tir, HERE, sketch.trace, tuple(row.tolist()))
        assert schedule is not None, row
        yield schedule


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_product_is_right_and_free_of_races(name: str) -> None:
    tir, is_split = tir_of(name), list(PROGRAMS).index(name) % 2
    sketches = sketches_of(tir)
    assert len(sketches) == len(VARIANTS)
    for schedule in drawn(tir, sketches[-1 if is_split else 1], 1):
        report, error = run_on_random_operands(tir, schedule, HERE)
        assert not report.faults, report
        assert error <= ERRORS[sketches[0].facts["sums"]]
        assert report.bank_conflicts["shared load"].ratio <= 1.5


def test_any_number_of_stages_gives_the_same_sums() -> None:
    tir = tir_of("aligned")
    for sketch in sketches_of(tir):
        for schedule in drawn(tir, sketch, 1):
            report, error = run_on_random_operands(tir, schedule, HERE)
            assert not report.faults, report
            assert error <= ERRORS["float32"]


@pytest.mark.parametrize(
    ("left", "right"), [(False, False), (False, True), (True, False)], ids=["plain", "right", "left"]
)
def test_a_large_tile_wastes_no_transfer_and_has_no_bank_conflicts(left: bool, right: bool) -> None:
    tir = transposed(128, 128, 64, left=left, right=right)
    sketch = sketches_of(tir)[1]
    sides = [(1, 16, 8 // length) for length in sketch.facts["neighbours"]]
    schedule = rebuild(tir, HERE, sketch.trace, (4, 4, *sides[0], *sides[1]))
    report, _ = run_on_random_operands(tir, schedule, HERE)
    assert report.global_sectors["cp.async from global"].ratio <= 1.1
    assert report.global_sectors["global store"].ratio <= 1.1
    assert report.bank_conflicts["shared load"].ratio == 1
    assert "shared store" not in report.bank_conflicts  # all copies are asynchronous


def test_half_of_random_candidates_are_valid() -> None:
    """The others have too many threads or too much shared memory."""
    tir = tir_of("aligned")
    for sketch in sketches_of(tir)[::3]:
        rows = SketchRules(sketch).sample(np.random.default_rng(1), 12).tolist()
        built = [rebuild(tir, HERE, sketch.trace, c.decisions) for c in sketch.candidates(rows)]
        assert sum(schedule is not None for schedule in built) >= len(built) / 2


def test_tensor_cores_keep_the_products_that_they_take() -> None:
    for tir in (product(64, 64, 64, "float16", "float32"), product(64, 64, 64, "bfloat16", "float32")):
        assert sketches_of(tir) == []


def test_turing_has_ordinary_copies_and_takes_what_its_tensor_cores_do_not() -> None:
    old = target("sm_75")
    for tir in (tir_of("aligned"), product(64, 64, 64, "float16", "float32")):
        (sketch,) = sketches_of(tir, old)
        schedule = next(schedules(parse_module(tir), parse_tvm_target(old)))
        assert "async" not in sketch.trace
        (kernel,) = compile_for_cuda(schedule.mod, parse_tvm_target(old)).kernels
        assert kernel.spill_bytes == 0


def test_sketches_of_different_sizes_are_the_same() -> None:
    """So that schedules and cost models pass from one size of an operator to another."""
    small, large = (sketches_of(product(rows, 64, 64)) for rows in (128, 256))
    assert [sketch.key for sketch in small] == [sketch.key for sketch in large]


def test_the_space_of_a_product_has_the_sketches() -> None:
    tir = tir_of("aligned")
    found = [sketch.key for sketch in design_space(tir, HERE) if sketch.facts.get("kind") == KIND]
    assert found == [sketch.key for sketch in sketches_of(tir)]


OTHER_ARCHS = [pytest.param(arch, marks=pytest.mark.long) for arch in ARCHS[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize("arch", [*OTHER_ARCHS, ARCHS[-1]])
@pytest.mark.parametrize("right", [pytest.param(False, marks=pytest.mark.long), True])
def test_nvcc_compiles_the_best_guess_without_spills(right: bool, arch: str) -> None:
    tir = transposed(2048, 2048, 2048, left=False, right=right)
    for sketch in sketches_of(tir, target(arch))[1::2]:
        (schedule,) = guesses(tir, sketch, 1)
        for kernel in compile_for_cuda(schedule.mod, parse_tvm_target(target(arch))).kernels:
            assert (kernel.spill_bytes, kernel.stack_bytes) == (0, 0)
