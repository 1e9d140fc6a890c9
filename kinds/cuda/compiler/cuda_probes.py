"""Build probes for a GPU: kernels that measure peaks, bandwidths and the start of a kernel.

Loops run as often as an argument says, and each result is stored, so that no compiler can
compute or remove them. There are so many thread blocks that the last ones weigh little.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import tvm

from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda
from mallorn.kinds.cuda.compute_capability import AMPERE, WARP_SIZE, capability
from mallorn.workers.host.linker import link_shared
from mallorn.workers.interfaces.hardware_probes import Finds, Probe
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target

BLOCKS, THREADS = 16_384, 256
SUMS: Final = 16  # independent sums of a thread: more than its latency needs
CHAINS: Final = 8  # independent products of a warp on tensor cores
# Some milliseconds on fast GPUs.
TURNS: Final = {"float32": 2048, "tensor cores": 512, "shared": 384, "L2": 64}
UNROLLED: Final = 4  # loads of a turn
VECTOR: Final = 4  # float32 numbers of a load
SHARED_FLOATS: Final = 4096
L2_BYTES: Final = 3 << 20  # fits the smallest L2 cache and exceeds every L1 cache
MEMORY_BYTES: Final = 256 << 20  # exceeds the largest L2 cache
_TILE: Final = THREADS * VECTOR  # numbers that a block loads at a time


class Mma(NamedTuple):
    """A shape of `mma`, and the numbers that a lane holds of each matrix."""

    shape: str
    depth: int
    operand: str  # TVM's type of operands
    name: str  # PTX's type of operands
    sums: str
    left: int
    right: int


MMAS: Final[Mapping[str, tuple[Mma, ...]]] = {
    "float16": (
        Mma("m16n8k16", 16, "float16", "fp16", "float32", 8, 4),
        Mma("m16n8k16", 16, "float16", "fp16", "float16", 8, 4),
    ),
    "bfloat16": (Mma("m16n8k16", 16, "bfloat16", "bf16", "float32", 8, 4),),
    "tfloat32": (Mma("m16n8k8", 8, "float32", "tf32", "float32", 4, 2),),
    "int8": (Mma("m16n8k32", 32, "int8", "int8", "int32", 16, 8),),
}
_SUM_NAMES: Final = {"float32": "fp32", "float16": "fp16", "int32": "int32"}
_LANE_SUMS: Final = 4  # of the 16 * 8 sums of an instruction


def build_cuda_probes(target: str, folder: str) -> list[Probe]:
    """Write libraries of probes into `folder`, one per type and kind, and return them."""
    tvm_target, probes = parse_tvm_target(target), []
    for probe, text in cuda_probes(str(tvm_target.attrs["arch"])):
        module = tvm.IRModule({probe.function: tvm.script.from_source(text)})
        library = compile_for_cuda(module, tvm_target).library
        library.export_library(str(Path(folder, probe.library)), fcompile=link_shared)
        probes.append(probe)
    return probes


def cuda_probes(arch: str) -> Iterator[tuple[Probe, str]]:
    """Yield the probes of an architecture, each with its kernel as TVMScript."""
    yield float32_peak()
    gpu = capability(arch)
    for dtype, instructions in MMAS.items():
        if dtype in gpu.tensor_core_types and gpu.number >= AMPERE:
            for mma in instructions:
                yield tensor_core_peak(dtype, mma)
    yield shared_bandwidth()
    yield l2_bandwidth()
    yield memory_bandwidth()
    body = """
                out[block, thread] = data[block, thread]"""
    yield _probe(Finds.FORK, "launch", (1, THREADS), body, 1, 1.0, blocks=1)


def float32_peak() -> tuple[Probe, str]:
    """Return the probe of the float32 peak outside tensor cores."""
    body = f"""
                sums = T.sblock_alloc_buffer(({SUMS},), "float32", scope="local")
                for i in T.unroll({SUMS}):
                    sums[i] = data[i, thread]
                for turn in range(turns[0]):
                    for i in T.unroll({SUMS}):
                        sums[i] = sums[i] * data[0, thread] + data[1, thread]
                out[block, thread] = T.float32(0)
                for i in T.unroll({SUMS}):
                    out[block, thread] = out[block, thread] + sums[i]"""
    turns = TURNS["float32"]
    work = 2.0 * BLOCKS * THREADS * SUMS * turns
    return _probe(Finds.PEAK, "float32", (SUMS, THREADS), body, turns, work)


def tensor_core_peak(dtype: str, mma: Mma) -> tuple[Probe, str]:
    body = f"""
                left = T.sblock_alloc_buffer(({mma.left},), "{mma.operand}", scope="local")
                right = T.sblock_alloc_buffer(({mma.right},), "{mma.operand}", scope="local")
                sums = T.sblock_alloc_buffer(({CHAINS * _LANE_SUMS},), "{mma.sums}", scope="local")
                for i in T.unroll({mma.left}):
                    left[i] = T.Cast("{mma.operand}", data[i, thread])
                for i in T.unroll({mma.right}):
                    right[i] = T.Cast("{mma.operand}", data[i, thread])
                for i in T.unroll({CHAINS * _LANE_SUMS}):
                    sums[i] = T.Cast("{mma.sums}", data[0, thread])
                for turn in range(turns[0]):
                    for i in T.unroll({CHAINS}):
                        T.evaluate(T.ptx_legacy.mma(
                            "{mma.shape}", "row", "col", "{mma.name}", "{mma.name}", "{_SUM_NAMES[mma.sums]}",
                            left.data, 0, right.data, 0, sums.data, i * {_LANE_SUMS}, False,
                            dtype="{mma.sums}",
                        ))
                out[block, thread] = T.float32(0)
                for i in T.unroll({CHAINS * _LANE_SUMS}):
                    out[block, thread] = out[block, thread] + T.Cast("float32", sums[i])"""
    turns = TURNS["tensor cores"]
    work = 2.0 * 16 * 8 * mma.depth * BLOCKS * (THREADS // WARP_SIZE) * CHAINS * turns
    name = f"{dtype}_sums_{mma.sums}"
    return _probe(Finds.PEAK, name, (mma.left, THREADS), body, turns, work, dtype=dtype)


def shared_bandwidth() -> tuple[Probe, str]:
    tile = SHARED_FLOATS // VECTOR
    row = f"(turn * {THREADS // 2} + i * {THREADS} + thread) % {tile}"
    body = f"""
                tile = T.sblock_alloc_buffer(({tile}, {VECTOR}), "float32", scope="shared")
                sums = T.sblock_alloc_buffer(({VECTOR},), "float32", scope="local")
                for i in T.unroll({tile // THREADS}):
                    for j in T.vectorized({VECTOR}):
                        tile[i * {THREADS} + thread, j] = data[i * {VECTOR} + j, thread]
                T.evaluate(T.tvm_storage_sync("shared"))
                for j in T.unroll({VECTOR}):
                    sums[j] = T.float32(0)
                for turn in range(turns[0]):
                    for i in T.unroll({UNROLLED}):
                        for j in T.vectorized({VECTOR}):
                            sums[j] = sums[j] + tile[{row}, j]
                out[block, thread] = sums[0] + sums[1] + sums[2] + sums[3]"""
    turns = TURNS["shared"]
    work = 4.0 * VECTOR * UNROLLED * BLOCKS * THREADS * turns
    shape = (tile // THREADS * VECTOR, THREADS)
    return _probe(Finds.BANDWIDTH, "shared", shape, body, turns, work, working_set=4 * SHARED_FLOATS)


def l2_bandwidth() -> tuple[Probe, str]:
    """Return the probe of the bandwidth of L2. Blocks of a multiprocessor read different
    tiles at a time, so that its L1 cache helps little."""
    tiles = L2_BYTES // 4 // _TILE
    tile = f"(block + (turn * {UNROLLED} + i) * 97) % {tiles}"
    body = f"""
                sums = T.sblock_alloc_buffer(({VECTOR},), "float32", scope="local")
                for j in T.unroll({VECTOR}):
                    sums[j] = T.float32(0)
                for turn in range(turns[0]):
                    for i in T.unroll({UNROLLED}):
                        for j in T.vectorized({VECTOR}):
                            sums[j] = sums[j] + data[{tile}, thread * {VECTOR} + j]
                out[block, thread] = sums[0] + sums[1] + sums[2] + sums[3]"""
    turns = TURNS["L2"]
    work = 4.0 * VECTOR * UNROLLED * BLOCKS * THREADS * turns
    return _probe(Finds.BANDWIDTH, "L2", (tiles, _TILE), body, turns, work, working_set=L2_BYTES)


def memory_bandwidth() -> tuple[Probe, str]:
    blocks = MEMORY_BYTES // 4 // _TILE
    body = f"""
                for j in T.vectorized({VECTOR}):
                    out[block, thread * {VECTOR} + j] = data[block, thread * {VECTOR} + j] + T.float32(1)"""
    shape = (blocks, _TILE)
    return _probe(Finds.MEMORY, "memory", shape, body, 1, 2.0 * MEMORY_BYTES, blocks=blocks, width=_TILE)


def _probe(
    finds: Finds,
    name: str,
    shape: tuple[int, int],
    body: str,
    turns: int,
    work: float,
    *,
    dtype: str = "float32",
    working_set: int = 0,
    blocks: int | None = None,
    width: int = THREADS,
) -> tuple[Probe, str]:
    blocks = blocks or BLOCKS
    text = f"""@T.prim_func(s_tir=True)
def {name}(data: T.Buffer({shape}, "float32"), turns: T.Buffer((1,), "int32"),
           out: T.Buffer(({blocks}, {width}), "float32")) -> None:
    T.func_attr({{"global_symbol": "{name}", "tirx.noalias": True}})
    for block in T.thread_binding({blocks}, thread="blockIdx.x"):
        for thread in T.thread_binding({THREADS}, thread="threadIdx.x"):
            with T.sblock("probe"):{body}
"""
    tensors = Tensor("TENSOR", "float32", shape), Tensor("TENSOR", "int32", (1,))
    arguments = Arguments(
        (*tensors, Tensor("TENSOR", "float32", (blocks, width))), ranges={"1": (turns, turns + 1)}
    )
    return (
        Probe(finds, name, f"{name}.so", arguments, blocks, dtype, VECTOR, bytes=working_set, work=work),
        text,
    )
