"""Models of GPU kernels' times: what slows a kernel down, and the first guesses of kinds of sketches."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mallorn.core.values.candidate import SKETCH_FACTS
from mallorn.core.values.machine import AcceleratorAttributes
from mallorn.kinds.cuda.times.kernel_time import KernelWork, kernel_us
from mallorn.kinds.cuda.times.products import TensorCoreProduct
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.loop_nest import Access, Axis, Nest, matrix_product_nest
from mallorn.searchers.roller.rank_candidates import ranked, sketch_time_model
from mallorn.searchers.space import Choice, ChoiceKind, Sketch

H100 = assume_typical_gpu("sm_90a")
COMPUTING = KernelWork(
    blocks=np.array([132.0]),
    threads=np.array([256.0]),
    registers=np.array([64.0]),
    shared_bytes=np.array([0.0]),
    steps=np.array([1.0]),
    bytes_in_flight=np.array([1e6]),
    l2_bytes=np.array([1.0]),
    memory_bytes=np.array([1.0]),
    instructions=np.array([1.0]),
    shared_traffic=np.array([1.0]),
    operations=np.array([1e8]),
    peak_gflops=H100.gflops["float32"],
    filling=np.array([1.0]),
)


def us(**changes: Any) -> float:
    arrays = {name: np.array([value]) if name != "stages" else value for name, value in changes.items()}
    return float(kernel_us(replace(COMPUTING, **arrays), H100)[0])


def sketch(kind: str, names: list[str], choices: list[Choice], **facts: Any) -> Sketch:
    text = json.dumps({"kind": kind, "choices": names, **facts})
    trace = json.dumps([["Annotate", ["b0", f'"{text}"'], [SKETCH_FACTS], []]])
    return Sketch(kind, trace, tuple(choices))


def tile(extent: int, width: int, limit: int = 0) -> Choice:
    return Choice(ChoiceKind.TILE, width, extent=extent, limit=limit)


def numbers(*labels: int) -> Choice:
    return Choice(ChoiceKind.CATEGORICAL, 1, values=tuple(range(len(labels))), labels=labels)


def halves(nest: Nest) -> Nest:
    return Nest(nest.axes, tuple(replace(read, element_bytes=2) for read in nest.reads), nest.write)


def tensor_core_product(size: int, *, stages: int = 3, permuted: bool = False) -> Sketch:
    count = size // 16
    return sketch(
        "tensor core product",
        ["depth: steps fragments", "rows: grid group warps fragments", "columns: grid warps fragments"],
        [tile(count, 2, 8), tile(count, 4, 8), tile(count, 3, 8)],
        fragment=[16, 16, 16],
        operands="float16",
        sums="float32",
        result="float32",
        stages=stages,
        permuted=permuted,
        depth_innermost=[True, False],
        vectors=[8, 8],
    )


def test_one_block_too_many_for_the_multiprocessors_takes_another_round() -> None:
    alone = {"threads": 1024.0, "registers": 64.0}  # one block fits on a multiprocessor
    assert us(blocks=133.0, **alone) - H100.fork_us == pytest.approx(
        2 * (us(blocks=132.0, **alone) - H100.fork_us), rel=0.01
    )


@pytest.mark.parametrize(
    ("name", "few", "many"),
    [
        ("l2_bytes", 1.0, 1e7),
        ("shared_traffic", 1.0, 1e8),  # as bank conflicts cause
        ("instructions", 1.0, 1e8),
        ("memory_bytes", 1.0, 1e9),
        ("registers", 64.0, 300.0),  # spilled
        ("steps", 1.0, 1e4),
    ],
)
def test_a_kernel_that_needs_more_takes_longer(name: str, few: float, many: float) -> None:
    assert us(**{name: many}) > 1.3 * us(**{name: few})


@pytest.mark.parametrize(("name", "value"), [("threads", 1056.0), ("shared_bytes", 300e3)])
def test_a_kernel_that_no_gpu_launches_takes_far_longer_than_any_other(name: str, value: float) -> None:
    assert us(**{name: value}) > 100 * us()


def test_loads_ahead_hide_the_latency_of_steps() -> None:
    waiting = {"steps": 1e3, "operations": 1.0}
    assert (
        us(stages=4.0, **waiting) < us(stages=2.0, **waiting) < us(stages=1.0, blocks=132.0, **waiting) * 1.01
    )


def test_few_bytes_in_flight_do_not_fill_the_bandwidth() -> None:
    assert us(memory_bytes=1e9, bytes_in_flight=512.0) > 2 * us(memory_bytes=1e9, bytes_in_flight=1e5)


@pytest.mark.parametrize("size", [512, 4096])
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
def test_the_first_guess_of_a_product_fills_a_gpu_and_fits_it(size: int, arch: str) -> None:
    machine, nest = assume_typical_gpu(arch), halves(matrix_product_nest((size, size), (size,)))
    rows, estimates = _model(tensor_core_product(size), nest, machine).best(8)
    assert SketchRules(tensor_core_product(size)).well_formed(rows).all()
    _, deep, grid, group, warps, fragments, grid_columns, warps_columns, fragments_columns = rows[0]
    tile_rows, tile_columns = 16 * warps * fragments, 16 * warps_columns * fragments_columns
    assert (
        3 * (tile_rows + tile_columns) * 16 * deep * 2 + tile_rows * tile_columns * 4
        < machine.caches[0].bytes
    )
    assert 64 <= 32 * warps * warps_columns <= 512
    assert grid * group * grid_columns >= machine.cores * 0.5
    assert fragments * fragments_columns > 1
    assert estimates[0] >= 2 * size**3 / machine.gflops["float16"] / 1e3


def test_best_finds_what_an_exhaustive_search_finds() -> None:
    nest = halves(matrix_product_nest((256, 512), (256,)))
    model = _model(tensor_core_product(256), nest)
    _, estimates = model.best(4)
    drawn = SketchRules(tensor_core_product(256)).sample(np.random.default_rng(1), 20_000)
    assert estimates[0] <= model.time_us(drawn).min()  # type: ignore[union-attr]


def test_a_permuted_tile_has_rows_that_can_be_permuted() -> None:
    rows, _ = _model(
        tensor_core_product(4096, permuted=True), matrix_product_nest((4096,) * 2, (4096,))
    ).best(8)
    for row in rows:
        assert 16 * row[1] == 32 or 16 * row[1] % 64 == 0
        assert 16 * row[7] * row[8] == 32 or 16 * row[7] * row[8] % 64 == 0


def _model(of: Sketch, nest: Nest, machine: Any = H100) -> TensorCoreProduct:
    model = sketch_time_model(of, [nest], machine)
    assert isinstance(model, TensorCoreProduct)
    return model


def _vector_nest(sums: int, depth: int) -> Nest:
    axes = Axis(sums), Axis(depth, reduced=True)
    matrix = Access((sums, depth), (((0, 1),), ((1, 1),)), 2)
    return Nest(axes, (Access((depth,), (((1, 1),),), 2), matrix), Access((sums,), (((0, 1),),), 4))


def test_a_product_with_a_vector_reads_whole_vectors_at_the_bandwidth() -> None:
    names = ["lanes", "threads of a sum", "sums: grid block", "unrolled steps"]
    choices = [
        numbers(1, 2, 4, 8),
        numbers(8, 16, 32, 64, 128, 256, 512),
        tile(8192, 2, 16),
        numbers(1, 64, 512),
    ]
    product = sketch("vector product", names, choices, narrow=1, own=1, vector=8, is_depth_innermost=True)
    model = sketch_time_model(product, [_vector_nest(8192, 8192)], H100)
    assert model is not None
    rows, estimates = model.best(4)
    assert rows[0][0] == 3
    bandwidth_us = 2 * 8192**2 / H100.memory_gbytes_per_sec / 1e3
    assert bandwidth_us < estimates[0] < 1.2 * bandwidth_us


def test_a_kind_without_a_model_begins_with_usual_threads_and_the_widest_vectors() -> None:
    unknown = sketch("novel", ["vector", "columns: grid threads"], [numbers(1, 2, 4), tile(4096, 2)])
    model = sketch_time_model(unknown, [], H100)
    assert model is not None
    rows, _ = model.best(4)
    assert rows[0][0] == 2
    assert rows[0][2] in (128, 256)
    assert model.time_us(rows) is None
    assert ranked([unknown], (), H100, 1)[0].decisions == tuple(rows[0].tolist())


def test_a_gpu_with_half_the_multiprocessors_has_half_the_rate() -> None:
    half = assume_typical_gpu("sm_90a", AcceleratorAttributes(multiprocessors=66, l2_bytes=25 << 20))
    assert half.gflops["float16"] == pytest.approx(H100.gflops["float16"] / 2)
    assert half.core_gflops == pytest.approx(H100.core_gflops)
    assert half.caches == H100.caches[:1] + half.caches[1:]
    assert half.caches[1].bytes == (25 << 20) // 66
