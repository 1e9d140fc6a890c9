"""The emulator of CUDA kernels: results are right, and faults that are planted are found."""

import re
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tvm.script import ir as I
from tvm.script import tirx as T

from mallorn.core.targets import Target
from mallorn.kinds.cuda.compiler import cuda_rules
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.space.rebuild_schedule import rebuild, validate
from mallorn.workers.tvm.space.sketches import design_space
from tests.fixtures.cuda_emulator import CudaProgram, Launch, Report, UnknownAssembly, lower, run_program
from tests.unit.tvm_space import cuda_programs
from tests.unit.tvm_space.cuda_programs import target

HERE = target("sm_90a")
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


def without(text: str, nth: int = 0) -> Callable[[str], str]:
    """An edit that removes one occurrence of a text from a source."""

    def edit(source: str) -> str:
        places = [found.start() for found in re.finditer(re.escape(text), source)]
        return source[: places[nth]] + source[places[nth] + len(text) :]

    return edit


def ones(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


# ---------------------------------------------------------------- kernels that TVM writes


@lru_cache
def scheduled(kind: str, tir: str) -> CudaProgram:
    """The first candidate of a kind of sketch ("wmma", "mma", "plain"), or DLight's schedule."""
    for sketch in design_space(tir, HERE):
        if not sketch.choices:
            if kind == "dlight":
                return lower(rebuild(tir, HERE, sketch.trace, ()), HERE)
            continue
        is_mma, is_wmma = cuda_rules.MMA in sketch.trace, "wmma" in sketch.trace
        if kind == ("mma" if is_mma else "wmma" if is_wmma else "plain"):
            compiler: Any = SimpleNamespace(nests=nests, validate=validate)
            program: Any = SimpleNamespace(tir=tir)
            space = TvmSpace([sketch], program, Target(HERE), (), compiler)
            for candidate in (*space.likeliest(4), *space.sample(np.random.default_rng(0), 32)):
                if schedule := rebuild(tir, HERE, sketch.trace, candidate.decisions):
                    return lower(schedule, HERE)
    pytest.fail(f"no candidate of {kind}")


def product(kind: str, size: tuple[int, int, int], dtype: str, sums: str) -> tuple[CudaProgram, list[Array]]:
    m, n, k = size
    program = scheduled(kind, cuda_programs.product(m, n, k, dtype, sums))
    if dtype == "int8":
        arrays = [RNG.integers(-128, 128, shape).astype(dtype) for shape in ((m, k), (k, n))]
    else:
        arrays = [ones(*shape).astype(dtype) for shape in ((m, k), (k, n))]
    return program, [*arrays, np.full((m, n), -1).astype(sums)]


def error(arrays: list[Array]) -> float:
    a, b, c = (array.astype(np.float64) for array in arrays)
    return float(np.abs(a @ b - c).max())


@pytest.mark.parametrize(
    ("kind", "size", "dtype", "sums", "tolerance"),
    [
        ("plain", (64, 64, 64), "float32", "float32", 1e-4),
        ("wmma", (128, 128, 64), "float16", "float32", 1e-4),
        ("wmma", (128, 128, 64), "float16", "float16", 0.1),
        ("mma", (128, 128, 128), "float16", "float32", 1e-4),
        ("mma", (128, 128, 128), "float16", "float16", 0.3),
        ("dlight", (128, 128, 64), "float16", "float32", 1e-4),
        ("dlight", (64, 64, 64), "bfloat16", "float32", 1e-4),
        ("wmma", (64, 64, 64), "int8", "int32", 0),
        ("dlight", (64, 64, 64), "int8", "int32", 0),
    ],
)
def test_a_product_is_right_and_free_of_races(
    kind: str, size: tuple[int, int, int], dtype: str, sums: str, tolerance: float
) -> None:
    program, arrays = product(kind, size, dtype, sums)
    report = run_program(program, arrays)
    assert report.faults == []
    assert error(arrays) <= tolerance
    m, n, k = size
    products = {"wmma": m * n * k // 16**3, "mma": m * n * k // (16 * 8 * 8)}
    if kind in products:
        assert report.instructions["mma"] == products[kind]


def test_softmax_by_shuffles_is_right() -> None:
    a, out = ones(16, 256), np.full((16, 256), np.nan, "float32")
    report = run_program(scheduled("dlight", cuda_programs.softmax(16, 256)), [a, out])
    powers = np.exp(a - a.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
    assert report.faults == []
    assert report.instructions["shuffle"] > 0


def test_a_product_with_a_vector_is_right() -> None:
    a, b, out = ones(1, 256).astype("float16"), ones(64, 256).astype("float16"), np.zeros((1, 64), "float32")
    report = run_program(
        scheduled("dlight", cuda_programs.product_with_vector(64, 256, "float16")), [a, b, out]
    )
    np.testing.assert_allclose(out, a.astype("float32") @ b.astype("float32").T, rtol=1e-4, atol=1e-4)
    assert report.faults == []


@pytest.mark.parametrize("kind", ["plain", "dlight"])
def test_a_depthwise_convolution_is_right(kind: str) -> None:
    x, w, out = ones(1, 8, 14, 14), ones(8, 3, 3), np.zeros((1, 8, 14, 14), "float32")
    report = run_program(scheduled(kind, cuda_programs.depthwise(8, 14, 3)), [x, w, out])
    pad = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = [(i, j) for i in range(3) for j in range(3)]
    wanted = sum(pad[:, :, i : i + 14, j : j + 14] * w[None, :, i, j, None, None] for i, j in taps)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)
    assert report.faults == []


@I.ir_module
class TwoKernels:
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((64,), "float32"), c: T.Buffer((64,), "float32")) -> None:
        b = T.sblock_alloc_buffer((64,))
        for i in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("b"):
                v = T.axis.spatial(64, i)
                b[v] = a[v] + T.float32(1)
        for i in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("c"):
                v = T.axis.spatial(64, i)
                c[v] = b[63 - v] * T.float32(2)


def test_kernels_that_pass_an_array_on_run_in_order() -> None:
    a, c = ones(64), np.zeros(64, "float32")
    report = run_program(lower(TwoKernels, HERE), [a, c])
    np.testing.assert_array_equal(c, (a[::-1] + 1) * 2)
    assert report.faults == []


# ---------------------------------------------------------------- faults planted in them


@pytest.mark.parametrize("kind", ["plain", "wmma", "mma", "dlight"])
def test_a_removed_barrier_is_a_race(kind: str) -> None:
    dtype, size = ("float32", (64, 64, 64)) if kind == "plain" else ("float16", (128, 128, 128))
    program, arrays = product(kind, size, dtype, "float32")
    count = program.source.count("__syncthreads();")
    assert count
    reports = [run_program(program, arrays, without("__syncthreads();", nth)) for nth in {0, count - 1}]
    assert any(report.races or report.uninitialized_reads for report in reports)
    race = next(report.races[0] for report in reports if report.races)
    assert race.thread != race.other_thread
    assert re.search("shared|shmem", race.line + race.other_line)


def test_a_read_beyond_an_array_ends_the_run_and_names_the_place() -> None:
    program, arrays = product("plain", (64, 64, 64), "float32", "float32")
    report = run_program(program, arrays, lambda source: source.replace("b_ptr + ", "b_ptr + 4080 + ", 1))
    (fault,) = report.faults
    assert fault.kind == "out of bounds"
    assert "of array 1, which has 16384" in fault.text
    assert "b_ptr + 4080" in fault.line


# ---------------------------------------------------------------- kernels written for a test


def run(
    body: str, arrays: list[Array], threads: int = 32, grid: int = 1, dynamic: int = 0, before: str = ""
) -> Report:
    """Run a kernel with the arguments p0, p1... on arrays."""
    types = {"float32": "float", "uint32": "unsigned", "float16": "half"}
    names = [types[array.dtype.name] for array in arrays]
    parameters = ", ".join(f"{name}* p{i}" for i, name in enumerate(names))
    source = f'{before}\nextern "C" __global__ void k({parameters}) {{\n int t = threadIdx.x;\n{body}\n}}\n'
    places = tuple(("array", i) for i in range(len(arrays)))
    launch = Launch("k", places, (grid, 1, 1), (threads, 1, 1), dynamic)
    return run_program(CudaProgram(source, (launch,)), arrays)


def numbers(count: int) -> Array:
    return np.arange(count, dtype="float32")


@pytest.mark.parametrize(("stride", "ways"), [(1, 1), (2, 2), (8, 8), (32, 32), (33, 1), (0, 1)])
def test_a_stride_costs_wavefronts(stride: int, ways: int) -> None:
    body = f"""__shared__ float s[2048]; for (int i = t; i < 2048; i += 32) s[i] = i; __syncwarp();
    p0[t] = s[t * {stride}];"""
    report = run(body, [out := np.zeros(32, "float32")])
    np.testing.assert_array_equal(out, numbers(32) * stride)
    loads = report.bank_conflicts["shared load"]
    assert (loads.requests, loads.actual, loads.ideal) == (1, ways, 1)
    assert report.bank_conflicts["shared store"].ratio == 1
    assert report.faults == []


@pytest.mark.parametrize(("kind", "ideal"), [("float2", 2), ("float4", 4)])
def test_wide_accesses_are_served_by_parts_of_a_warp(kind: str, ideal: int) -> None:
    width = int(kind[-1])
    body = f"""__shared__ alignas(16) float s[{width * 32}];
    *({kind}*)(s + t * {width}) = *({kind}*)(p0 + t * {width});
    __syncwarp();
    *({kind}*)(p1 + t * {width}) = *({kind}*)(s + (31 - t) * {width});"""
    report = run(body, [a := numbers(width * 32), out := np.zeros(width * 32, "float32")])
    np.testing.assert_array_equal(out.reshape(32, width), a.reshape(32, width)[::-1])
    for name in ("shared load", "shared store"):
        cost = report.bank_conflicts[name]
        assert (cost.requests, cost.actual, cost.ideal) == (1, ideal, ideal)
    assert report.global_sectors["global load"].actual == 4 * width


def test_a_column_costs_a_sector_per_element() -> None:
    report = run("p1[t] = p0[t * 64];", [a := numbers(2048), out := np.zeros(32, "float32")])
    np.testing.assert_array_equal(out, a[::64])
    loads, stores = report.global_sectors["global load"], report.global_sectors["global store"]
    assert (loads.actual, loads.ideal) == (32, 4)
    assert stores.ratio == 1
    assert {line for line, kind in report.lines if kind == "global load"} == {"line 4: p1[t] = p0[t * 64];"}


def test_lanes_that_diverge_are_counted_by_the_visits_of_an_instruction() -> None:
    body = "for (int i = 0; i < (t < 16 ? 2 : 4); ++i) p0[i * 32 + t] = t;"
    report = run(body, [np.zeros(128, "float32")])
    assert report.global_sectors["global store"].requests == 4
    assert report.global_sectors["global store"].actual == 4 + 4 + 2 + 2


def test_lanes_of_a_warp_are_not_in_lockstep() -> None:
    body = "__shared__ float s[32]; s[t] = p0[t]; {sync} p1[t] = s[31 - t];"
    arrays = [numbers(32), np.zeros(32, "float32")]
    assert run(body.replace("{sync}", ""), arrays).faults
    report = run(body.replace("{sync}", "__syncwarp();"), arrays)
    assert report.faults == []
    np.testing.assert_array_equal(arrays[1], arrays[0][::-1])


def test_two_warps_need_a_barrier_of_the_block() -> None:
    body = "__shared__ float s[64]; s[t] = p0[t]; {sync} p1[t] = s[63 - t];"
    arrays = [numbers(64), np.zeros(64, "float32")]
    report = run(body.replace("{sync}", "__syncwarp();"), arrays, 64)
    assert report.races or report.uninitialized_reads
    assert run(body.replace("{sync}", "__syncthreads();"), arrays, 64).faults == []


def test_a_write_after_another_thread_s_read_is_a_race() -> None:
    """Whoever of many readers the machine remembers, the writer meets another one."""
    for writer in (0, 17, 40, 63):
        body = f"""__shared__ float s[1]; if (t == 0) s[0] = 1; __syncthreads();
        p0[t] = s[0]; {{sync}} if (t == {writer}) s[0] = 2;"""
        races = run(body.replace("{sync}", ""), [np.zeros(64, "float32")], 64).races
        assert races
        assert all(writer in (race.thread, race.other_thread) for race in races)
        assert run(body.replace("{sync}", "__syncthreads();"), [np.zeros(64, "float32")], 64).faults == []


def test_what_nobody_wrote_is_no_number() -> None:
    report = run("__shared__ float s[64]; s[t] = 1; p0[t] = s[t + 1];", [out := np.zeros(32, "float32")])
    assert report.uninitialized_reads
    assert np.isnan(out[31])


def test_a_vector_at_an_odd_address_is_a_fault() -> None:
    (fault,) = run("*(float4*)(p0 + 4 * t + 1) = make_float4(1, 2, 3, 4);", [np.zeros(160, "float32")]).faults
    assert fault.kind == "misaligned"


def test_a_write_beyond_dynamic_shared_memory_is_a_fault() -> None:
    body = "extern __shared__ __align__(64) float s[]; s[t + {more}] = 1; p0[t] = s[t + {more}];"
    arrays = [np.zeros(32, "float32")]
    assert run(body.replace("{more}", "0"), arrays, dynamic=128).faults == []
    assert run(body.replace("{more}", "1"), arrays, dynamic=128).out_of_bounds


@pytest.mark.parametrize(
    "body",
    [
        "if (t < 32) __syncthreads(); p0[t] = 1;",
        "if (t < 16) p0[t] = __shfl_sync(0xFFFFFFFF, t, 0); else __syncthreads();",
        "if (t < 16) { __syncthreads(); p0[t] = 1; }\nelse { __syncthreads(); p0[t] = 2; }",
    ],
)
def test_threads_that_never_come_are_a_fault(body: str) -> None:
    report = run(body, [np.zeros(64, "float32")], 64)
    assert {fault.kind for fault in report.faults} == {"synchronization"}


def test_shuffles_and_votes() -> None:
    body = """p0[t] = __shfl_down_sync(0xFFFFFFFF, t, 4); p0[t + 32] = __shfl_up_sync(0xFFFFFFFF, t, 4, 16);
    p0[t + 64] = __shfl_xor_sync(0xFFFFFFFF, t, 5); p0[t + 96] = __shfl_sync(0xFFFFFFFF, t, 3, 8);
    p0[t + 128] = __ballot_sync(0xFFFFFFFF, t % 2); p0[t + 160] = __any_sync(0xFFFFFFFF, t == 7);
    p0[t + 192] = __all_sync(0xFFFFFFFF, t < 31);
    if (t < 8) p0[t + 224] = __activemask();"""
    report = run(body, [out := np.zeros(256, "uint32")])
    t = np.arange(32)
    assert report.faults == []
    np.testing.assert_array_equal(out[:32], np.where(t < 28, t + 4, t))
    np.testing.assert_array_equal(out[32:64], np.where(t % 16 < 4, t, t - 4))
    np.testing.assert_array_equal(out[64:96], t ^ 5)
    np.testing.assert_array_equal(out[96:128], t // 8 * 8 + 3)
    assert set(out[128:160]) == {0xAAAAAAAA}
    assert set(out[160:192]) == {1}
    assert set(out[192:224]) == {0}
    assert set(out[224:232]) == {0xFF}


# ---------------------------------------------------------------- asynchronous copies

COPY = """__shared__ alignas(128) float s[256]; unsigned at = __cvta_generic_to_shared(s + 4 * t);
asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(p0 + 4 * t) : "memory");
asm volatile("cp.async.commit_group;");
asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(at + 512), "l"(p0 + 128 + 4 * t) : "memory");
asm volatile("cp.async.commit_group;");
{first} __syncthreads();
for (int i = 0; i < 4; ++i) p1[4 * t + i] = s[127 - 4 * t - i];
{second} __syncthreads();
for (int i = 0; i < 4; ++i) p1[128 + 4 * t + i] = s[255 - 4 * t - i];"""
WAIT = 'asm volatile("cp.async.wait_group %0;" :: "n"({}) : "memory");'


def copied(first: str, second: str) -> tuple[Report, Array]:
    out = np.zeros(256, "float32")
    return run(COPY.replace("{first}", first).replace("{second}", second), [numbers(256), out]), out


def test_asynchronous_copies_arrive_group_by_group() -> None:
    report, out = copied(WAIT.format(1), WAIT.format(0))
    wanted = np.concatenate([numbers(128)[::-1], numbers(256)[:127:-1]])
    np.testing.assert_array_equal(out, wanted)
    assert report.faults == []
    assert report.instructions["cp.async"] == 2
    assert report.bank_conflicts["cp.async to shared"].ratio == 1
    assert report.global_sectors["cp.async from global"].actual == 32


@pytest.mark.parametrize(
    ("first", "second"), [("", WAIT.format(0)), (WAIT.format(1), ""), (WAIT.format(2), WAIT.format(0))]
)
def test_a_missing_wait_is_a_race_and_a_wrong_result(first: str, second: str) -> None:
    report, out = copied(first, second)
    assert any("before an asynchronous copy has arrived" in race.text for race in report.races)
    assert np.isnan(out).any()


def test_a_wait_without_a_barrier_is_a_race() -> None:
    report, _ = copied(WAIT.format(0) + " if (t < 0)", "if (t < 0)")
    assert {race.text for race in report.races} >= {"read after write"}


def test_a_buffer_must_be_read_before_the_next_copy_into_it() -> None:
    body = """__shared__ alignas(16) float s[128]; unsigned at = __cvta_generic_to_shared(s + 4 * t);
    s[4 * t] = 0; __syncthreads();
    p1[t] = s[4 * (31 - t)]; {sync}
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(p0 + 4 * t) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");"""
    arrays = [numbers(128), np.zeros(32, "float32")]
    assert run(body.replace("{sync}", ""), arrays).races
    assert run(body.replace("{sync}", "__syncthreads();"), arrays).faults == []


def test_a_copy_of_fewer_bytes_fills_up_with_zeros_and_a_guarded_one_is_left_out() -> None:
    body = """__shared__ alignas(16) float s[128]; unsigned at = __cvta_generic_to_shared(s + 4 * t);
    for (int i = 0; i < 4; ++i) s[4 * t + i] = 7;
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; "
        "@p cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %3; }"
        :: "r"(at), "l"(p0 + 4 * t), "r"(t % 2), "r"(t == 31 ? 0 : 8) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    for (int i = 0; i < 4; ++i) p1[4 * t + i] = s[4 * t + i];"""
    report = run(body, [a := numbers(124), out := np.zeros(128, "float32")])
    assert report.faults == []
    wanted = np.full((32, 4), 7.0)
    wanted[1::2] = 0
    wanted[1:31:2, :2] = a.reshape(31, 4)[1::2, :2]
    np.testing.assert_array_equal(out.reshape(32, 4), wanted)


# ---------------------------------------------------------------- tensor cores


@pytest.mark.parametrize(("swizzled", "ratio"), [(False, 8.0), (True, 1.0)])
def test_rows_of_128_bytes_conflict_in_ldmatrix_unless_swizzled(swizzled: bool, ratio: float) -> None:
    chunk = "(c ^ (r & 7))" if swizzled else "c"
    body = f"""__shared__ alignas(128) half s[16 * 64];
    for (int i = t; i < 128; i += 32) {{
        int r = i / 8, c = i % 8;
        *(uint4*)(s + r * 64 + {chunk} * 8) = *(uint4*)(p0 + i * 8);
    }}
    __syncthreads();
    int r = t % 16, c = 2 + t / 16;
    unsigned at = __cvta_generic_to_shared(s + r * 64 + {chunk} * 8);
    unsigned d[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0, %1, %2, %3}}, [%4];"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at));
    for (int i = 0; i < 4; ++i) *(unsigned*)(p1 + t * 8 + i * 2) = d[i];"""
    a, out = np.arange(1024, dtype="float16").reshape(16, 64), np.zeros((32, 4, 2), "float16")
    report = run(body, [a, out])
    assert report.faults == []
    assert report.bank_conflicts["ldmatrix"].ratio == ratio
    assert report.bank_conflicts["ldmatrix"].ideal == 4
    for lane in range(32):
        for matrix in range(4):
            row, column = matrix % 2 * 8 + lane // 4, 16 + matrix // 2 * 8 + lane % 4 * 2
            np.testing.assert_array_equal(out[lane, matrix], a[row, column : column + 2])


def test_ldmatrix_transposes() -> None:
    body = """__shared__ alignas(128) half s[64];
    for (int i = t; i < 64; i += 32) s[i] = p0[i];
    __syncthreads();
    unsigned d, at = __cvta_generic_to_shared(s + t % 8 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(d) : "r"(at));
    *(unsigned*)(p1 + 2 * t) = d;"""
    a, out = np.arange(64, dtype="float16").reshape(8, 8), np.zeros(64, "float16")
    assert run(body, [a, out]).faults == []
    np.testing.assert_array_equal(out.reshape(8, 8), a.T)


# What PTX ISA, "Matrix Fragments for mma", says of element i of a lane in group g, thread t of the group.
FRAGMENTS: dict[
    str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[..., Any]]
] = {
    "m16n8k8.f16": (
        lambda g, i: g if i < 2 else g + 8,
        lambda t, i: 2 * t + i % 2,
        lambda t, i: 2 * t + i,
        lambda g, i: g,
    ),
    "m16n8k16.f16": (
        lambda g, i: g if i in (0, 1, 4, 5) else g + 8,
        lambda t, i: 2 * t + i % 2 + (8 if i >= 4 else 0),
        lambda t, i: 2 * t + i % 2 + (8 if i >= 2 else 0),
        lambda g, i: g,
    ),
    "m16n8k4.tf32": (lambda g, i: g + 8 * i, lambda t, i: t, lambda t, i: t, lambda g, i: g),
    "m16n8k8.tf32": (
        lambda g, i: g if i in (0, 2) else g + 8,
        lambda t, i: t if i < 2 else t + 4,
        lambda t, i: t + 4 * i,
        lambda g, i: g,
    ),
    "m16n8k16.s8": (
        lambda g, i: g if i < 4 else g + 8,
        lambda t, i: 4 * t + i % 4,
        lambda t, i: 4 * t + i,
        lambda g, i: g,
    ),
    "m16n8k32.s8": (
        lambda g, i: g if i < 4 or 8 <= i < 12 else g + 8,
        lambda t, i: 4 * t + i % 4 + (16 if i >= 8 else 0),
        lambda t, i: 4 * t + i % 4 + (16 if i >= 4 else 0),
        lambda g, i: g,
    ),
}
FRAGMENTS |= {name.replace("f16", "bf16"): rows for name, rows in FRAGMENTS.items() if "f16" in name}


def bits_of(values: Array, kind: str) -> Array:
    """Numbers as an operand of a type has them in memory."""
    if kind == "bf16":
        return (values.astype("float32").view("uint32") >> 16).astype("uint16")
    return values.astype({"f16": "float16", "tf32": "float32", "s8": "int8"}[kind])


@pytest.mark.parametrize("sums", ["f32", "f16"])
@pytest.mark.parametrize("name", FRAGMENTS)
def test_mma_has_the_fragments_of_the_isa(name: str, sums: str) -> None:
    shape, _, kind = name.partition(".")
    if sums == "f16" and kind != "f16":
        return
    sums = "s32" if kind == "s8" else sums
    k = int(shape.partition("k")[2])
    a_row, a_column, b_row, b_column = FRAGMENTS[name]
    a, b, c = (RNG.integers(-8, 8, size).astype("float32") for size in ((16, k), (k, 8), (16, 8)))
    a_fragments, b_fragments = np.zeros((32, 16 * k // 32)), np.zeros((32, 8 * k // 32))
    c_fragments = np.zeros((32, 4))
    places = []
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for i in range(a_fragments.shape[1]):
            a_fragments[lane, i] = a[a_row(g, i), a_column(t, i)]
        for i in range(b_fragments.shape[1]):
            b_fragments[lane, i] = b[b_row(t, i), b_column(g, i)]
        for i in range(4):
            places.append((g + 8 * (i // 2), 2 * t + i % 2))
            c_fragments[lane, i] = c[places[-1]]
    words = [bits_of(fragments, kind).view("uint32") for fragments in (a_fragments, b_fragments)]
    words.append(
        c_fragments.astype({"f32": "float32", "f16": "float16", "s32": "int32"}[sums]).view("uint32")
    )
    counts = [word.shape[1] for word in words]
    groups, at = [], counts[2]
    for count in counts:
        groups.append("{" + ", ".join(f"%{at + i}" for i in range(count)) + "}")
        at += count
    to = "{" + ", ".join(f"%{i}" for i in range(counts[2])) + "}"
    outputs = ", ".join(f'"=r"(p3[t * {counts[2]} + {i}])' for i in range(counts[2]))
    inputs = ", ".join(
        f'"r"(p{j}[t * {count} + {i}])' for j, count in enumerate(counts) for i in range(count)
    )
    opcode = f"mma.sync.aligned.{shape}.row.col.{sums}.{kind}.{kind}.{sums}"
    body = f'asm volatile("{opcode} {to}, {", ".join(groups)};" : {outputs} : {inputs});'
    out = np.zeros_like(words[2])
    report = run(body, [*words, out])
    assert report.faults == []
    assert report.instructions["mma"] == 1
    wanted = np.array([(a @ b + c)[place] for place in places])
    np.testing.assert_array_equal(
        out.view({"f32": "float32", "f16": "float16", "s32": "int32"}[sums]).ravel(), wanted
    )


def test_bfloat16_rounds_to_the_nearest_even_number() -> None:
    body = "p1[t] = (float)(nv_bfloat16)p0[t];"
    a = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-16, -3.14159, 1e38] + [0] * 26, "float32")
    out = np.zeros(32, "float32")
    assert run(body, [a, out]).faults == []
    assert out[:4].tolist() == [1, 1, 1 + 2**-6, 1 + 2**-7]
    np.testing.assert_allclose(out[:6], a[:6], rtol=2**-8)


def test_unknown_assembly_is_an_error_with_its_text() -> None:
    with pytest.raises(UnknownAssembly, match="wgmma"):
        run('asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); p0[t] = 1;', [np.zeros(32, "float32")])
