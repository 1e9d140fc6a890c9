"""The view `kernels`: what a lowered CUDA program tells of its launch, its memory and its time."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.s_tir import Schedule

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.views import KERNELS
from mallorn.kinds.cuda.compiler import cuda_rules
from mallorn.kinds.cuda.compiler.cuda_kernel_view import LARGEST, describe_kernels, kernel_features
from mallorn.kinds.cuda.compiler.cuda_rules import can_launch, lower_kernels
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target
from tests.unit.tvm_space.cuda_programs import target

ARCH = "sm_90a"
HERE = target(ARCH)
# The columns of the view, in order.
COLUMNS = (
    *("kernels", "blocks", "threads", "static_shared_bytes", "dynamic_shared_bytes"),
    *("registers", "spilled_registers", "blocks_per_sm", "waves"),
    *("arithmetic", "tensor_products", "barriers", "async_groups", "shuffles", "statements"),
    *("occupancy", "balance"),
    *(
        f"{kind} {part}"
        for kind in ("loads", "stores", "shared")
        for part in ("bytes", "efficiency", "bytes a lane")
    ),
    *(f"buffer {place} {part}" for place in range(LARGEST) for part in ("reads", "efficiency")),
    *("compute_time", "memory_time", "cache_time", "shared_time", "spill_time", "modelled_time"),
)
SIDE = 64
THREADS = 32


def transposing_copy(*, in_shared: bool = False, padding: int = 0) -> Schedule:
    """A copy whose threads write rows and read columns: from memory, or from shared memory."""
    a = te.placeholder((SIDE, SIDE), "float32", "a")
    b = te.compute((SIDE, SIDE), lambda i, j: a[j, i], "b")
    function = te.create_prim_func([a, b]).with_attr({"global_symbol": "main", "tirx.noalias": True})
    schedule = Schedule(tvm.IRModule({"main": function}))
    block = schedule.get_sblock("b")
    i, j = schedule.get_loops(block)
    i_out, i_in = schedule.split(i, [None, THREADS])
    j_out, j_in = schedule.split(j, [None, THREADS])
    schedule.reorder(i_out, j_out, i_in, j_in)
    schedule.bind(i_out, "blockIdx.y")
    schedule.bind(j_out, "blockIdx.x")
    schedule.bind(j_in, "threadIdx.x")
    if in_shared:
        tile = schedule.cache_read(block, 0, "shared")
        schedule.compute_at(tile, j_out)
        schedule.bind(schedule.get_loops(tile)[-1], "threadIdx.x")
        schedule.storage_align(tile, 0, axis=0, factor=THREADS, offset=padding)
    return schedule


def row_of(schedule: Any) -> dict[str, float]:
    functions = lower_kernels(schedule.mod, parse_tvm_target(HERE))
    assert functions is not None
    return dict(zip(COLUMNS, kernel_features(functions, ARCH)[0].tolist(), strict=True))


def count(logarithm: float) -> float:
    return float(2**logarithm - 1)


def test_a_row_has_a_name_for_each_column_and_is_finite() -> None:
    schedule = transposing_copy()
    row = describe_kernels("", HERE, schedule)
    assert row.shape == (1, KERNELS.width)
    assert len(set(COLUMNS)) == KERNELS.width
    assert np.isfinite(row).all()


def test_a_copy_that_reads_columns_moves_a_sector_for_each_element() -> None:
    row = row_of(transposing_copy())
    blocks = (SIDE // THREADS) ** 2
    assert (count(row["blocks"]), count(row["threads"])) == pytest.approx((blocks, THREADS))
    assert row["loads efficiency"] == pytest.approx(4 / 32)
    assert row["stores efficiency"] == pytest.approx(1.0)
    assert count(row["loads bytes"]) == pytest.approx(32 * SIDE * SIDE, rel=1e-4)
    assert count(row["buffer 0 reads"]) == pytest.approx(8, rel=1e-4)  # of the whole input


def test_padding_of_shared_memory_removes_bank_conflicts() -> None:
    conflicts, padded = (row_of(transposing_copy(in_shared=True, padding=offset)) for offset in (0, 1))
    assert conflicts["loads efficiency"] == padded["loads efficiency"] == pytest.approx(1.0)
    assert conflicts["shared efficiency"] == pytest.approx(2 / 33, rel=1e-3)
    assert padded["shared efficiency"] == pytest.approx(1.0)
    assert padded["shared_time"] < conflicts["shared_time"]
    assert count(padded["static_shared_bytes"]) == pytest.approx(THREADS * (THREADS + 1) * 4)


def test_the_modelled_time_prefers_the_copy_that_reads_rows() -> None:
    columns, rows = transposing_copy(), transposing_copy(in_shared=True, padding=1)
    assert row_of(rows)["cache_time"] < row_of(columns)["cache_time"]


def test_a_product_on_tensor_cores_counts_their_instructions() -> None:
    m, n, k = 256, 256, 128
    a, b = te.placeholder((m, k), "float16", "a"), te.placeholder((k, n), "float16", "b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), r), "c")
    function = te.create_prim_func([a, b, c]).with_attr({"global_symbol": "main", "tirx.noalias": True})
    schedule = cuda_rules.dlight_schedule(tvm.IRModule({"main": function}), parse_tvm_target(HERE))
    row = row_of(schedule)
    assert count(row["tensor_products"]) == pytest.approx(m * n * k / 16**3, rel=1e-4)
    assert count(row["barriers"]) > 0
    assert 0 < row["occupancy"] <= 1


def test_a_candidate_is_lowered_once_for_its_check_and_its_features(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, asked = transposing_copy(), []
    split = cuda_rules.split_host_device_mods
    monkeypatch.setattr(
        cuda_rules, "split_host_device_mods", lambda module: asked.append(module) or split(module)
    )
    assert can_launch(schedule.mod, parse_tvm_target(HERE))
    describe_kernels("", HERE, schedule)
    assert len(asked) == 1


def test_a_program_for_a_cpu_has_no_kernels() -> None:
    with pytest.raises(InvalidRequest, match="the view kernels describes CUDA kernels"):
        describe_kernels("", '{"kind":"llvm","mcpu":"haswell"}', transposing_copy())
