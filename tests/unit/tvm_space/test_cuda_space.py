"""CUDA's space: a task of any kind has valid candidates, a good one first, and DLight's schedule."""

import json
import subprocess
import sys
from functools import cache
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace

from mallorn.core.targets import Target
from mallorn.kinds.cuda.compiler import cuda_rules
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.tvm.compile.build_libraries import compile_module
from mallorn.workers.tvm.network.graph_recipes import TUNED_GPU, recipe_steps
from mallorn.workers.tvm.network.run_recipe_passes import run_steps
from mallorn.workers.tvm.programs.allowed_programs import read_trace
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import (
    design_contexts,
    is_choice,
    new_schedule,
    parse_module,
    parse_tvm_target,
)
from mallorn.workers.tvm.programs.program_blocks import tensor_args
from mallorn.workers.tvm.space.rebuild_schedule import full_trace, rebuild, validate
from mallorn.workers.tvm.space.sketches import design_space, to_plain_value
from tests.fixtures.cuda_emulator import lower, run_kernel
from tests.unit.tvm_space import cuda_programs
from tests.unit.tvm_space.cuda_programs import ARCHS, PROGRAMS, SMALL_PROGRAMS, product, target

ROOT = Path(__file__).resolve().parents[3]
HERE = target("sm_90a")
HALF = "fp16 product, sums in fp32"


@cache
def tir_of(name: str) -> str:
    return PROGRAMS[name]()


def space_of(name: str, arch: str) -> TvmSpace:
    """The space as a worker sees it, with a compiler in this process."""
    return space_of_program(tir_of(name), target(arch))


def space_of_program(tir: str, text: str) -> TvmSpace:
    compiler: Any = SimpleNamespace(nests=nests, validate=validate)
    program: Any = SimpleNamespace(tir=tir)
    return TvmSpace(design_space(tir, text), program, Target(text), (), compiler)


def scheduled(name: str, text: str, sketch: Sketch, candidate: Candidate) -> Any:
    schedule = rebuild(tir_of(name), text, sketch.trace, candidate.decisions)
    assert schedule is not None
    return schedule


def dlight_sketch(name: str, text: str = HERE) -> Sketch:
    *_, last = design_space(tir_of(name), text)
    assert last.choices == ()
    return last


OTHER_ARCHS = [pytest.param(arch, marks=pytest.mark.long) for arch in ARCHS[:-1]]
# `make test` runs the first default of these at small sizes.
OTHER_SIZES = {
    *("fp32 product of odd sizes", "fp32 product of prime sizes", "narrow fp32 product"),
    *("fp16 product of odd sizes", "narrow fp16 product"),
}
KINDS = [pytest.param(name, marks=pytest.mark.long) if name in OTHER_SIZES else name for name in PROGRAMS]


@pytest.mark.slow
@pytest.mark.parametrize("arch", [*OTHER_ARCHS, ARCHS[-1]])
@pytest.mark.parametrize("name", KINDS)
def test_the_first_default_of_a_task_becomes_cuda_code(name: str, arch: str) -> None:
    space = space_of(name, arch)
    (first,) = space.likeliest(1)
    schedule = scheduled(name, target(arch), space.by_key[first.sketch], first)
    assert compile_module(schedule.mod, target(arch))[0].imports


def random_arguments(tir: str) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    arrays = []
    for tensor in tensor_args(parse_module(tir)):
        is_integer = tensor.dtype.startswith("int")
        values = rng.integers(-8, 8, tensor.shape) if is_integer else rng.standard_normal(tensor.shape)
        arrays.append(values.astype(tensor.dtype))
    return arrays


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_PROGRAMS)
def test_the_first_default_of_a_small_task_is_right_and_free_of_races(name: str) -> None:
    """As the emulator of CUDA kernels sees it, compared with the program on this CPU."""
    tir = SMALL_PROGRAMS[name]()
    space = space_of_program(tir, HERE)
    (first,) = space.likeliest(1)
    schedule = rebuild(tir, HERE, space.by_key[first.sketch].trace, first.decisions)
    arrays = random_arguments(tir)
    expected = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(parse_module(tir), "llvm")(*expected)
    arrays[-1][...] = -1
    report = run_kernel(schedule, HERE, arrays)
    assert report.faults == []
    tolerance = 0.03 if arrays[-1].dtype == np.float16 else 1e-4
    wanted = expected[-1].numpy().astype(np.float64)
    np.testing.assert_allclose(arrays[-1], wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.parametrize("arch", [*OTHER_ARCHS, ARCHS[-1]])
@pytest.mark.parametrize("name", KINDS)
def test_the_first_guess_of_our_own_kinds_is_valid(name: str, arch: str) -> None:
    tir = tir_of(name)
    sketches = {sketch.key: sketch for sketch in design_space(tir, target(arch))}
    guesses = ranked(list(sketches.values()), nests(tir), assume_typical_gpu(arch), 8)
    ours = [guess for guess in guesses if sketches[guess.sketch].facts][:1]
    traces = [(sketches[guess.sketch].trace, guess.decisions) for guess in ours]
    assert validate(tir, target(arch), traces) == [True] * len(ours)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_of_32_random_candidates_some_are_valid(name: str) -> None:
    """Of tiles that are drawn at random a few percent are; DLight's schedule always is."""
    space = space_of(name, "sm_90a")
    drawn = space.sample(np.random.default_rng(0), 32)
    assert any(space.valid([candidate])[0] for candidate in drawn)
    assert space.valid([Candidate(space.sketches[-1].key, ())]) == [True]


def test_a_tile_of_mma_demands_a_multiple_of_its_inner_factors() -> None:
    (sketch,) = (s for s in design_space(tir_of(HALF), HERE) if cuda_rules.MMA in s.trace)
    rows, columns, depth, _ = sketch.choices
    assert (rows.extent, rows.inner_multiple) == (64, (3, 2))
    assert (columns.extent, columns.inner_multiple) == (128, (3, 4))
    assert depth.inner_multiple is None


def test_an_mma_candidate_is_the_program_that_tvm_samples() -> None:
    context = design_contexts(tir_of(HALF), HERE)[1]
    (sketch,) = (s for s in context.generate_design_space() if cuda_rules.MMA in str(s.trace))
    found = 0
    for seed in range(1, 200):
        schedule = new_schedule(tir_of(HALF), seed)
        Trace(sketch.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        decisions = [
            to_plain_value(schedule.trace.decisions[i]) for i in schedule.trace.insts if is_choice(i)
        ]
        flat = [number for each in decisions for number in (each if isinstance(each, list) else [each])]
        trace = json.dumps(to_plain_value(schedule.trace.as_json()[0]), sort_keys=True, separators=(",", ":"))
        rebuilt = rebuild(tir_of(HALF), HERE, trace, flat)
        if rebuilt is not None:
            schedule.enter_postproc()
            assert all(step.apply(schedule) for step in context.space_generator.postprocs)
            tvm.ir.assert_structural_equal(rebuilt.mod, schedule.mod)
            found += 1
        if found == 2:
            return
    pytest.fail("no sample was valid")


@pytest.mark.parametrize("name", [HALF, "int8 product"])
def test_sums_wider_than_their_operands_lower_whatever_the_tiles(name: str) -> None:
    """In dynamic shared memory TVM takes them for their operands (`tvm_access_ptr element type`)."""
    sketch = next(s for s in design_space(tir_of(name), HERE) if "wmma_sync" in s.trace)
    drawn = sketch.candidates(SketchRules(sketch).sample(np.random.default_rng(1), 24).tolist())
    built = (rebuild(tir_of(name), HERE, sketch.trace, candidate.decisions) for candidate in drawn)
    sources = [lower(schedule, HERE).source for schedule in islice(filter(None, built), 3)]
    assert ["mma_sync" in source for source in sources] == [True] * 3


def test_a_pipeline_of_one_step_is_refused_where_tvm_cannot_write_it() -> None:
    """Its wait for copies has a count that TVM does not fold: "immediate operands must become compile-time
    constants"."""
    tir = product(128, 128, 32, "float16", "float32")
    sketch = next(s for s in design_space(tir, HERE) if cuda_rules.MMA in s.trace)
    drawn = sketch.candidates(SketchRules(sketch).sample(np.random.default_rng(0), 24).tolist())
    for candidate in drawn:
        schedule = rebuild(tir, HERE, sketch.trace, candidate.decisions)
        if schedule is not None:
            assert compile_module(schedule.mod, HERE)[0].imports


def test_a_sum_by_threads_that_tvm_does_not_lower_once_unrolled_is_refused() -> None:
    tir = cuda_programs.means_of_windows(8, 8)
    by_threads = [sketch for sketch in design_space(tir, HERE) if sketch.choices and not sketch.facts]
    vectors = [SketchRules(sketch).sample(np.random.default_rng(0), 16) for sketch in by_threads]
    built = [
        rebuild(tir, HERE, sketch.trace, tuple(row.tolist()))
        for sketch, rows in zip(by_threads, vectors, strict=True)
        for row in rows
    ]
    modules = [schedule.mod for schedule in built if schedule is not None]
    assert 0 < len(modules) < len(built)
    for module in modules:
        assert lower(module, HERE).source


def test_a_kernel_that_opts_in_has_more_shared_memory_than_one_that_does_not() -> None:
    dlight = scheduled(HALF, HERE, dlight_sketch(HALF), Candidate("", ()))
    assert cuda_rules.can_launch(dlight.mod, parse_tvm_target(target("sm_89")))
    assert not cuda_rules.can_launch(dlight.mod, parse_tvm_target(target("sm_75")))


@pytest.mark.parametrize(
    "name",
    [
        HALF,
        "int8 product",
        "fp32 product with a vector",
        "softmax",
        "means of images",
        "transpose",
        "pooling",
    ],
)
def test_dlights_schedule_is_a_sketch_that_makes_the_same_program(name: str) -> None:
    made = cuda_rules.dlight_schedule(parse_module(tir_of(name)), parse_tvm_target(HERE))
    assert made is not None
    sketch = dlight_sketch(name)
    read_trace(sketch.trace)
    tvm.ir.assert_structural_equal(scheduled(name, HERE, sketch, Candidate("", ())).mod, made.mod)


def test_dlight_multiplies_on_tensor_cores_where_an_architecture_has_a_suffix() -> None:
    assert "wmma_sync" in dlight_sketch(HALF).trace
    assert "wmma_sync" in dlight_sketch(HALF, target("sm_80")).trace


def test_dlight_multiplies_int8_on_tensor_cores() -> None:
    """Its own schedule has a software pipeline over one iteration, which TVM does not lower."""
    sketch = dlight_sketch("int8 product")
    assert "wmma_sync_16x16x16_s8s8s32" in sketch.trace
    assert compile_module(scheduled("int8 product", HERE, sketch, Candidate("", ())).mod, HERE)[0].imports


def test_an_untuned_int8_product_lowers() -> None:
    """The recipe's default schedules are DLight's, by the rule that makes what TVM can lower."""
    parsed = parse_tvm_target(target("sm_80"))
    scheduled_by_rules, _ = run_steps(
        parse_module(tir_of("int8 product")), recipe_steps(TUNED_GPU)["after"], parsed
    )
    assert "wmma" in str(scheduled_by_rules)
    assert cuda_rules.can_launch(scheduled_by_rules, parsed)


def test_a_candidate_of_tensor_cores_is_rebuilt_in_another_process() -> None:
    """Which registers the instructions that its trace names."""
    sketch = dlight_sketch(HALF)
    script = (
        "import json, sys; from mallorn.workers.tvm.space.rebuild_schedule import validate;"
        "tir, target, trace = json.load(sys.stdin); print(validate(tir, target, [(trace, ())]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps([tir_of(HALF), HERE, sketch.trace]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["[True]"]


@pytest.mark.parametrize("name", [HALF, "softmax"])
def test_stock_tvm_applies_a_record_of_dlights_schedule(name: str, tmp_path: Path) -> None:
    tir, sketch, parsed = tir_of(name), dlight_sketch(name), parse_tvm_target(HERE)
    text = full_trace(tir, HERE, sketch.trace, ())
    assert text is not None
    replayed = new_schedule(tir)
    Trace.apply_json_to_schedule(json.loads(text), replayed)
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    workload = database.commit_workload(parse_module(tir))
    arguments = ms.arg_info.ArgInfo.from_prim_func(parse_module(tir)["main"])
    database.commit_tuning_record(
        ms.database.TuningRecord(replayed.trace, workload, [1e-3], parsed, arguments)
    )
    again = ms.database.JSONDatabase(work_dir=str(tmp_path))
    with parsed, again:
        applied = tvm.relax.transform.MetaScheduleApplyDatabase()(parse_module(tir))
    wanted = scheduled(name, HERE, sketch, Candidate("", ())).mod["main"].body
    tvm.ir.assert_structural_equal(applied["main"].body, wanted)
