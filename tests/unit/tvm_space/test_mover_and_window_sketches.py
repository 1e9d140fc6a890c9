"""Sketches of movers and of sums over windows: right, aligned, and without wasted accesses."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx

from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda
from mallorn.kinds.cuda.sketches import movers, windows
from mallorn.kinds.cuda.times.sketch_model import SketchModel
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.roller.rank_candidates import sketch_time_model
from mallorn.searchers.space import Sketch
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module, parse_tvm_target
from mallorn.workers.tvm.programs.program_blocks import arguments
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from tests.fixtures.cuda_emulator import Report, run_kernel
from tests.unit.tvm_space import cuda_sketches
from tests.unit.tvm_space.cuda_programs import (
    PROGRAMS,
    depthwise,
    depthwise_channels_last,
    elementwise,
    mover,
    pooling,
    product,
    softmax,
    transpose,
)
from tests.unit.tvm_space.cuda_sketches import HERE, assert_replayed

H200 = assume_typical_gpu("sm_90a")


def padded(x: Any, n: Any, i: Any, j: Any, c: Any) -> Any:
    return tirx.if_then_else(tirx.all(i >= 1, i < 7, j >= 1, j < 7), x[n, i - 1, j - 1, c], 0.0)


MOVERS = {
    "elementwise": elementwise(1024),
    "bias of channels": mover(
        [(2, 3, 6, 6), (3,)], (2, 3, 6, 6), lambda a, b, n, c, i, j: a[n, c, i, j] + b[c]
    ),
    "slice": mover([(20, 192)], (20, 64), lambda a, i, j: a[i, j + 64]),
    "slice of an odd offset": mover([(20, 192)], (20, 64), lambda a, i, j: a[i, j + 3]),
    "row of a wider tensor": mover([(20, 66)], (20, 64), lambda a, i, j: a[i, j]),
    "concatenation": mover(
        [(20, 32), (20, 33)], (20, 65), lambda a, b, i, j: tirx.if_then_else(j < 32, a[i, j], b[i, j - 32])
    ),
    "concatenation of a transposed tensor": mover(
        [(32, 40), (40, 32)],
        (40, 64),
        lambda a, b, i, j: tirx.if_then_else(j < 32, a[j, i], b[i, j - 32]),
    ),
    "pad": mover([(1, 6, 6, 16)], (1, 8, 8, 16), padded),
    "lookup": mover([(40, 24), (13,)], (13, 24), lambda a, b, i, j: a[b[i], j], "int32"),
    "reshape": mover([(6, 40)], (8, 30), lambda a, i, j: a[(i * 30 + j) // 40, (i * 30 + j) % 40]),
    "larger image": mover([(1, 4, 5, 6)], (1, 4, 10, 12), lambda a, n, c, i, j: a[n, c, i // 2, j // 2]),
    "cast to bytes": mover([(96,)], (96,), lambda a, i: (a[i] * 8.0).astype("int8")),
    "transpose": transpose(64, 96),
    "transpose of odd sizes": transpose(45, 77),
    "transpose in fp16": mover([(64, 136)], (136, 64), lambda a, i, j: a[j, i], "float16"),
    "transpose of a part": mover([(32, 70)], (64, 32), lambda a, i, j: a[j, i + 1]),
    "channels first to last": mover(
        [(2, 40, 9, 12), (40,)], (2, 9, 12, 40), lambda a, b, n, i, j, c: a[n, c, i, j] + b[c]
    ),
}
CONCATENATION = mover(
    [(40, 64), (40, 64)],
    (40, 128),
    lambda a, b, i, j: tirx.if_then_else(j < 64, a[i, j], b[i, j - 64]),
    "float16",
)
WINDOWS = {
    "channels last": depthwise_channels_last(16, 8, 3),
    "channels last, odd sizes, stride": depthwise_channels_last(20, 9, 3, 2),
    "channels last, fp16": depthwise_channels_last(32, 8, 5, dtype="float16"),
    "channels first": depthwise(6, 14, 3),
    "pooling": pooling(8, 16),
}
CASES = {name: (movers, tir) for name, tir in MOVERS.items()}
CASES |= {name: (windows, tir) for name, tir in WINDOWS.items()}


def sketches_of(kind: Any, tir: str) -> list[Sketch]:
    return cuda_sketches.sketches_of(kind.schedules, tir)


def run(tir: str, schedule: Any) -> Report:
    """Run a candidate on random numbers; results that are not those of the CPU are an error."""
    module, generator = parse_module(tir), np.random.default_rng(0)
    found = [generator.uniform(0, 9, tensor.shape).astype(tensor.dtype) for tensor in arguments(module).args]
    wanted = [tvm.runtime.tensor(array) for array in found]
    tvm.compile(module, target="llvm")(*wanted)
    report = run_kernel(schedule, HERE, found)
    for place in arguments(module).outputs:
        np.testing.assert_allclose(found[place], wanted[place].numpy(), rtol=2e-3, atol=2e-3)
    return report


def valid(tir: str, sketch: Sketch) -> Any:
    """Some candidates that can be launched; the first one has the most lanes."""
    rows = SketchRules(sketch).sample(np.random.default_rng(0), 24)
    rows = rows[np.argsort(-rows[:, 0], kind="stable")]
    built = (rebuild(tir, HERE, sketch.trace, tuple(row.tolist())) for row in rows)
    return (schedule for schedule in built if schedule is not None)


def sectors(report: Report) -> int:
    return sum(cost.actual for cost in report.global_sectors.values())


@pytest.mark.parametrize("name", CASES)
def test_a_candidate_computes_the_program_without_faults(name: str) -> None:
    kind, tir = CASES[name]
    sketches = sketches_of(kind, tir)
    assert sketches
    for sketch in sketches:
        assert len(sketch.facts["choices"]) == len(sketch.choices)
        assert not run(tir, next(valid(tir, sketch))).faults


@pytest.mark.parametrize(
    ("kind", "tir"),
    [
        (movers, elementwise(1 << 14)),
        (movers, transpose(128, 96)),
        (movers, MOVERS["transpose in fp16"]),
        (movers, CONCATENATION),
        (windows, depthwise_channels_last(32, 14, 3)),
    ],
    ids=["elementwise", "transpose", "transpose in fp16", "concatenation in fp16", "window"],
)
def test_the_best_candidates_waste_nothing(kind: Any, tir: str) -> None:
    for sketch in sketches_of(kind, tir)[:1]:
        (row, *_), _ = sketch_time_model(sketch, nests(tir), H200).best(4)
        report = run(tir, rebuild(tir, HERE, sketch.trace, tuple(row.tolist())))
        assert sectors(report) <= 1.1 * sum(cost.ideal for cost in report.global_sectors.values())
        assert all(cost.ratio == 1 for cost in report.bank_conflicts.values())


def test_the_model_of_a_window_counts_the_bytes_that_threads_read() -> None:
    tir = depthwise_channels_last(32, 16, 3)
    for sketch in sketches_of(windows, tir):
        model = sketch_time_model(sketch, nests(tir), H200)
        assert isinstance(model, SketchModel)
        (row, *_), _ = model.best(4)
        report, kernel = (
            run(tir, rebuild(tir, HERE, sketch.trace, tuple(row.tolist()))),
            model.kernel_of(row[None]),
        )
        counted = 32 * report.global_sectors["global load"].actual
        assert float(kernel.blocks[0] * kernel.shared_traffic[0]) == pytest.approx(counted, rel=0.4)


def test_a_mover_reads_vectors_where_it_may() -> None:
    lanes = {name: max(sketches_of(movers, tir)[0].choices[0].labels) for name, tir in MOVERS.items()}
    assert lanes["elementwise"] == lanes["slice"] == lanes["pad"] == lanes["lookup"] == 4
    assert lanes["bias of channels"] == lanes["channels first to last"] == 4
    assert lanes["row of a wider tensor"] == 2
    assert lanes["slice of an odd offset"] == lanes["concatenation"] == lanes["larger image"] == 1


@pytest.mark.parametrize(
    ("kind", "small", "large"),
    [
        (movers, elementwise(1024), elementwise(4096)),
        (movers, transpose(64, 96), transpose(128, 1024)),
        (windows, depthwise_channels_last(16, 9, 3, 2), depthwise_channels_last(96, 57, 3, 2)),
        (windows, depthwise(8, 14, 3), depthwise(96, 56, 3)),
    ],
    ids=["vectors", "tiles", "channels last", "channels first"],
)
def test_sketches_of_two_sizes_have_the_same_keys(kind: Any, small: str, large: str) -> None:
    keys = [[sketch.key for sketch in sketches_of(kind, tir)] for tir in (small, large)]
    assert keys[0] == keys[1] != []


@pytest.mark.parametrize("name", ["transpose", "channels last"])
def test_a_record_of_a_candidate_is_replayed_by_tvm(name: str) -> None:
    kind, tir = CASES[name]
    for sketch in sketches_of(kind, tir):
        assert_replayed(tir, sketch, SketchRules(sketch).sample(np.random.default_rng(0), 1)[0].tolist())


def test_other_programs_have_no_such_sketches() -> None:
    for program in (product(64, 64, 64), softmax(12, 136), PROGRAMS["fp32 convolution"]()):
        for kind in (movers, windows):
            assert not list(kind.schedules(parse_module(program), parse_tvm_target(HERE)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "tir", [depthwise_channels_last(96, 56, 7), transpose(1024, 1024)], ids=["7x7", "transpose"]
)
def test_the_kernel_of_the_first_guess_fits_registers(tir: str) -> None:
    kind = movers if "pad" not in tir else windows
    guesses = [
        (float(us[0]), sketch, rows[0])
        for sketch in sketches_of(kind, tir)
        for rows, us in [sketch_time_model(sketch, nests(tir), H200).best(4)]
    ]
    _, sketch, row = min(guesses, key=lambda guess: guess[0])
    schedule = rebuild(tir, HERE, sketch.trace, tuple(row.tolist()))
    assert schedule is not None
    (kernel,) = compile_for_cuda(schedule.mod, parse_tvm_target(HERE)).kernels
    assert kernel.spill_bytes == kernel.stack_bytes == 0
