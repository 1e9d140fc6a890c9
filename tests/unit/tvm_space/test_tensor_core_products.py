"""Products on tensor cores: right, free of races and of bank conflicts whatever the tiles."""

import re
from collections import defaultdict
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from mallorn.kinds.cuda.compiler.cuda_kernel_resources import KernelFigures, compile_for_cuda
from mallorn.kinds.cuda.compiler.cuda_kernel_view import LoweredKernelWork
from mallorn.kinds.cuda.compiler.cuda_rules import lower_kernels
from mallorn.kinds.cuda.graph.tensor_core_instructions import PREFIX
from mallorn.kinds.cuda.sketches.tensor_core_products import KIND, VARIANTS, schedules
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module, parse_tvm_target
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space, trace_text
from tests.fixtures.cuda_emulator import Report
from tests.fixtures.cuda_emulator.random_operands import run_on_random_operands
from tests.unit.tvm_space import cuda_sketches
from tests.unit.tvm_space.cuda_programs import (
    ARCHS,
    attention_scores,
    convolution,
    in_tf32,
    product,
    target,
)
from tests.unit.tvm_space.cuda_sketches import HERE, assert_replayed
from tests.unit.tvm_space.programs import text_of

#: Largest error beside the largest value: of the rounding of sums in the type of the result.
ERRORS = {"float32": 2e-6, "float16": 8e-3, "int32": 0}
#: What stands in the lines that load fragments, by the kind of access.
_LOADS = defaultdict(lambda: "no line", {"ldmatrix": "", "shared load": "mallorn_tf32"})


def channels_last(size: int, channels: int, out: int, kernel: int, stride: int) -> str:
    """A convolution over padded images with channels last, and a bias behind it."""
    x = te.placeholder((1, size, size, channels), "float16", "x")
    w = te.placeholder((kernel, kernel, channels, out), "float16", "w")
    bias, by = te.placeholder((out,), "float16", "bias"), kernel // 2
    zero = tirx.const(0, "float16")

    def element(b: Any, i: Any, j: Any, c: Any) -> Any:
        inside = tirx.all(i >= by, i < size + by, j >= by, j < size + by)
        return tirx.if_then_else(inside, x[b, i - by, j - by, c], zero)

    pad = te.compute((1, size + 2 * by, size + 2 * by, channels), element, "pad")
    ry, rx, rc = (te.reduce_axis((0, extent)) for extent in (kernel, kernel, channels))
    side = (size - 1) // stride + 1

    def sums(b: Any, i: Any, j: Any, o: Any) -> Any:
        read = pad[b, i * stride + ry, j * stride + rx, rc]
        return te.sum(read.astype("float32") * w[ry, rx, rc, o].astype("float32"), [ry, rx, rc])

    y = te.compute((1, side, side, out), sums, "y")
    shown = te.compute(y.shape, lambda *at: y(*at).astype("float16") + bias[at[-1]], "o")
    return text_of(x, w, bias, shown)


def transposed(m: int, n: int, k: int) -> str:
    """A float32 product whose left operand has its rows beside each other."""
    a, b, r = te.placeholder((k, m), name="a"), te.placeholder((k, n), name="b"), te.reduce_axis((0, k), "r")
    sums = te.compute((m, n), lambda i, j: te.sum(a[r, i] * b[r, j], r), "c")
    return text_of(a, b, sums)


def bytes_transposed(m: int, n: int, k: int) -> str:
    """A product of bytes whose right operand has the terms of a sum beside each other."""
    a, b = te.placeholder((m, k), "int8", "a"), te.placeholder((n, k), "int8", "b")
    r = te.reduce_axis((0, k), "r")
    sums = te.compute((m, n), lambda i, j: te.sum(a[i, r].astype("int32") * b[j, r].astype("int32"), r), "c")
    return text_of(a, b, sums)


PROGRAMS = {
    "fp16": lambda: product(128, 96, 64, "float16"),
    "fp16, sums in fp32": lambda: product(128, 64, 96, "float16", "float32"),
    "bf16": lambda: product(64, 64, 64, "bfloat16", "float32"),
    "int8": lambda: bytes_transposed(64, 64, 96),
    "tf32": lambda: in_tf32(product(64, 64, 96)),
    "tf32, the left operand transposed": lambda: in_tf32(transposed(64, 96, 48)),
    "tf32, the right operand transposed": lambda: in_tf32(attention_scores(3, 48, 32, "float32")),
    "tf32, odd sizes": lambda: in_tf32(product(50, 77, 61)),
    "tf32, convolution": lambda: in_tf32(convolution(16, 5, 32, 3)),
    "odd sizes": lambda: product(100, 77, 123, "float16", "float32"),
    "narrow": lambda: product(3, 128, 256, "float16", "float32"),
    "epilogue": lambda: product(96, 64, 80, "float16", "float32", relu=True),
    "batches, the right operand transposed": lambda: attention_scores(3, 48, 32, "float16"),
    "convolution, channels last": lambda: channels_last(6, 32, 48, 3, 1),
    "convolution with a stride": lambda: channels_last(7, 16, 32, 3, 2),
    "convolution, channels first": lambda: convolution(16, 5, 32, 3, "float16"),
}


@lru_cache
def tir_of(name: str) -> str:
    return PROGRAMS[name]()


@lru_cache
def sketches_of(name: str) -> list[Sketch]:
    return cuda_sketches.sketches_of(schedules, tir_of(name))


def some_of(name: str) -> list[Sketch]:
    """One sketch of each form: padded tiles, permuted ones, and a depth that is split."""
    seen: dict[tuple[bool, bool], Sketch] = {}
    for sketch in sketches_of(name):
        seen.setdefault((sketch.facts["permuted"], "splits" in sketch.facts["choices"][0]), sketch)
    return list(seen.values())


def valid(name: str, sketch: Sketch, count: int, arch: str = HERE) -> list[tuple[Candidate, Any]]:
    drawn = sketch.candidates(SketchRules(sketch).sample(np.random.default_rng(0), 16).tolist())
    built = (
        (candidate, rebuild(tir_of(name), arch, sketch.trace, candidate.decisions)) for candidate in drawn
    )
    return list(islice(((candidate, schedule) for candidate, schedule in built if schedule), count))


@lru_cache
def run(name: str, sketch: str, place: int = 0) -> tuple[Report, float]:
    """The emulator's report of a valid candidate of the sketch with this key, and its result's error."""
    (found,) = (each for each in sketches_of(name) if each.key == sketch)
    *_, (_, schedule) = valid(name, found, place + 1)
    return run_on_random_operands(tir_of(name), schedule, HERE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_sketch_computes_the_product_without_races(name: str) -> None:
    can_permute = name != "int8" and not name.startswith("tf32")
    assert len(sketches_of(name)) == (len(VARIANTS) if can_permute else len(VARIANTS) - 1)
    for sketch in some_of(name):
        if not valid(name, sketch, 1):
            continue
        report, error = run(name, sketch.key)
        assert not report.faults, report
        assert error <= ERRORS[sketch.facts["sums" if sketch.facts["result"] != "float16" else "result"]]
        assert report.instructions["mma"] > 0
        loads = [cost for (line, kind), cost in report.lines.items() if _LOADS[kind] in line]
        assert loads
        assert all(cost.ratio == 1 for cost in loads)
        assert report.instructions["unfinished copy"] == 0


def test_any_number_of_stages_gives_the_same_sums() -> None:
    for sketch in sketches_of("fp16, sums in fp32"):
        report, error = run("fp16, sums in fp32", sketch.key)
        assert not report.faults, report
        assert error <= ERRORS["float32"]


@pytest.mark.parametrize("name", ["fp16, sums in fp32", "odd sizes", "narrow"])
def test_a_fifth_of_random_candidates_is_valid(name: str) -> None:
    """The others have too many threads, too much shared memory, or rows that cannot be permuted."""
    drawn = [
        rebuild(tir_of(name), HERE, sketch.trace, candidate.decisions)
        for sketch in some_of(name)
        for candidate in sketch.candidates(SketchRules(sketch).sample(np.random.default_rng(1), 8).tolist())
    ]
    assert sum(schedule is not None for schedule in drawn) >= len(drawn) / 5


def test_operands_are_copied_by_asynchronous_vectors_that_waste_no_transfer() -> None:
    for sketch in some_of("fp16, sums in fp32"):
        report, _ = run("fp16, sums in fp32", sketch.key)
        assert report.global_sectors["cp.async from global"].ratio == 1
        assert "global load" not in report.global_sectors or sketch.facts["choices"][0].startswith(
            "depth: splits"
        )


def test_a_permuted_tile_is_written_without_bank_conflicts() -> None:
    sketch = next(sketch for sketch in some_of("fp16, sums in fp32") if sketch.facts["permuted"])
    for place in range(len(valid("fp16, sums in fp32", sketch, 3))):
        report, _ = run("fp16, sums in fp32", sketch.key, place)
        assert report.bank_conflicts["cp.async to shared"].ratio == 1


def test_zeros_around_an_image_need_no_ordinary_loads() -> None:
    """They are copies of no bytes."""
    report, _ = run("convolution, channels last", some_of("convolution, channels last")[0].key)
    assert report.global_sectors["cp.async from global"].ratio == 1
    assert report.instructions["cp.async"] > 0


def figures(name: str, sketch: Sketch, decisions: tuple[int, ...], arch: str) -> list[KernelFigures]:
    schedule = rebuild(tir_of(name), target(arch), sketch.trace, decisions)
    assert schedule is not None
    return list(compile_for_cuda(schedule.mod, parse_tvm_target(target(arch))).kernels)


OTHER_ARCHS = [pytest.param(arch, marks=pytest.mark.long) for arch in ARCHS[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize("arch", [*OTHER_ARCHS, ARCHS[-1]])
@pytest.mark.parametrize("name", ["fp16, sums in fp32", "bf16", "tf32", "int8", "convolution, channels last"])
def test_nvcc_compiles_each_sketch_without_spills(name: str, arch: str) -> None:
    for sketch in some_of(name):
        for candidate, _ in valid(name, sketch, 1):
            for kernel in figures(name, sketch, candidate.decisions, arch):
                assert (kernel.spill_bytes, kernel.stack_bytes) == (0, 0)


def test_models_take_the_rate_of_tf32_for_its_products() -> None:
    for sketch in some_of("tf32"):
        assert sketch.facts["operands"] == "tfloat32"
    ((_, schedule),) = valid("tf32", some_of("tf32")[0], 1)
    (kernel,) = lower_kernels(schedule.mod, parse_tvm_target(HERE)) or ()
    work = LoweredKernelWork(kernel.body)
    assert (work.tensor_type, work.tensor_flops * work.warps) == ("tfloat32", 2 * 64 * 64 * 96)


def test_turing_has_no_such_sketch() -> None:
    old = parse_tvm_target(target("sm_75"))
    assert list(schedules(parse_module(tir_of("fp16")), old)) == []


def test_tensor_cores_of_other_types_are_left_alone() -> None:
    assert list(schedules(parse_module(product(64, 64, 64)), parse_tvm_target(HERE))) == []


def test_sketches_of_different_sizes_are_the_same() -> None:
    """So that schedules and cost models pass from one size of an operator to another."""

    def traces(rows: int) -> list[str]:
        module = parse_module(product(rows, 64, 64, "float16", "float32"))
        return [trace_text(s.trace) for s in schedules(module, parse_tvm_target(HERE))]

    assert traces(128) == traces(256)


def test_the_space_of_a_product_has_the_sketches() -> None:
    found = [sketch for sketch in design_space(tir_of("fp16"), HERE) if sketch.facts.get("kind") == KIND]
    assert [sketch.key for sketch in found] == [sketch.key for sketch in sketches_of("fp16")]


def test_stock_tvm_applies_a_record() -> None:
    tir = tir_of("fp16, sums in fp32")
    sketch = next(s for s in sketches_of("fp16, sums in fp32") if s.facts["permuted"])
    ((candidate, _),) = valid("fp16, sums in fp32", sketch, 1)
    assert '"mallorn_' not in assert_replayed(tir, sketch, candidate.decisions)


def test_an_instruction_that_tvm_lacks_is_known_by_our_name_alone() -> None:
    """`apply.py` imports ours where a record has such a name, and TVM's for all others."""
    names = {
        name: set(re.findall(r'"(\w*mma\w*)"', some_of(name)[0].trace))
        for name in ("fp16, sums in fp32", "bf16", "tf32", "int8")
    }
    assert not any(each.startswith(PREFIX) for each in names["fp16, sums in fp32"])
    for name in ("bf16", "tf32", "int8"):
        assert sum(each.startswith(PREFIX) for each in names[name]) == 3
    own = [each for found in names.values() for each in found if each.startswith(PREFIX)]
    assert all(tvm.s_tir.TensorIntrin.get(each) is not None for each in own)
