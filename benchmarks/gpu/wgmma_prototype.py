"""Compile a product by `wgmma` for sm_90a, which TVM 0.27 can write as raw PTX only.

    python -m benchmarks.gpu.wgmma_prototype [--size 4096]

`prepare` builds it for part 1, which compares its result and times it beside the kernels of the same task.

A warpgroup of 128 threads computes 64 rows and 128 columns of C = A * B^T in float16 with
float32 sums. Tiles of both factors lie in shared memory as descriptors of `wgmma` demand: rows
of 128 bytes whose units of 16 bytes are permuted. Asynchronous copies fill three stages. No GPU
has run it (ADR 0095).
"""

import argparse
from typing import Any, Final

import tvm
from tvm.script import tirx as T

from benchmarks.gpu.kernel_index import WGMMA_ARCH
from mallorn.kinds.cuda.compiler.cuda_kernel_resources import CudaLibrary, compile_for_cuda
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target

ROWS, COLUMNS, DEPTH, STAGES = 64, 128, 64, 3  # of a thread block's tile and of a step
THREADS: Final = 128
_HELD: Final = ROWS * COLUMNS // THREADS  # sums of a thread
_UNIT: Final = 8  # numbers in 16 bytes
_RUN: Final = DEPTH // _UNIT  # such units in a row of a tile
_INSTRUCTION_DEPTH: Final = 16
_STAGE: Final = (ROWS + COLUMNS) * DEPTH  # numbers of a stage
_SWIZZLE_128: Final = 3  # as TVM counts the swizzles of a descriptor
GROUP: Final = 8 * DEPTH * 2 >> 4  # 16 bytes between groups of 8 rows of a tile


def product(rows: int, columns: int, depth: int) -> Any:
    """Return the kernel C[rows, columns] = A[rows, depth] * B[columns, depth]^T."""
    steps, column_blocks = depth // DEPTH, columns // COLUMNS

    def held(sums: Any) -> list[Any]:
        return [sums[index] for index in range(_HELD)]

    @T.prim_func(s_tir=True)
    def main(
        a: T.Buffer((rows, depth), "float16"),
        b: T.Buffer((columns, depth), "float16"),
        c: T.Buffer((rows, columns), "float32"),
    ) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for block in T.thread_binding(rows // ROWS * column_blocks, "blockIdx.x"):
            for thread in T.thread_binding(THREADS, "threadIdx.x"):
                with T.sblock("product"):
                    T.reads(a[0:rows, 0:depth], b[0:columns, 0:depth])
                    T.writes(c[0:rows, 0:columns])
                    tiles = T.sblock_alloc_buffer(
                        (STAGES * _STAGE,), "float16", scope="shared.dyn", align=1024
                    )
                    sums = T.sblock_alloc_buffer((_HELD,), "float32", scope="local")
                    operands = T.sblock_alloc_buffer((2,), "uint64", scope="local")
                    for index in T.unroll(_HELD):
                        sums[index] = T.float32(0)
                    for operand in T.unroll(2):
                        T.cuda.wgmma.encode_matrix_descriptor(
                            T.address_of(operands[operand]),
                            T.address_of(tiles[operand * ROWS * DEPTH]),
                            *(1, GROUP, _SWIZZLE_128),
                        )
                    for step in range(steps + STAGES - 1):
                        if step >= STAGES - 1:
                            T.ptx.cp.async_.wait_group(STAGES - 2)
                            T.ptx.fence.proxy.async_.shared__cta()
                            T.evaluate(T.tvm_storage_sync("shared"))
                            T.ptx.wgmma.fence.sync.aligned()
                            for part in T.unroll(DEPTH // _INSTRUCTION_DEPTH):
                                T.ptx.wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16(
                                    *held(sums),
                                    *(
                                        operands[0]
                                        + T.Cast("uint64", descriptor_offset((step + 1) % STAGES, part)),
                                        operands[1]
                                        + T.Cast("uint64", descriptor_offset((step + 1) % STAGES, part)),
                                    ),
                                    *(True, 1, 1, 0, 0),
                                )
                            T.ptx.wgmma.commit_group.sync.aligned()
                        # Copies into the stage that the products before the barrier have read.
                        if step < steps:
                            for number in T.unroll(ROWS * _RUN // THREADS):
                                row, column, permuted = T.meta_var(copied_unit(number, thread))
                                T.ptx.cp.async_.cg.shared.global_(
                                    T.address_of(tiles[step % STAGES * _STAGE + row * DEPTH + permuted]),
                                    T.address_of(
                                        a[block // column_blocks * ROWS + row, step * DEPTH + column]
                                    ),
                                    16,
                                )
                            for number in T.unroll(COLUMNS * _RUN // THREADS):
                                row, column, permuted = T.meta_var(copied_unit(number, thread))
                                T.ptx.cp.async_.cg.shared.global_(
                                    T.address_of(
                                        tiles[step % STAGES * _STAGE + (ROWS + row) * DEPTH + permuted]
                                    ),
                                    T.address_of(
                                        b[block % column_blocks * COLUMNS + row, step * DEPTH + column]
                                    ),
                                    16,
                                )
                        T.ptx.cp.async_.commit_group()
                        if step >= STAGES - 1:
                            T.ptx.wgmma.wait_group.sync.aligned(0)
                    for index in T.unroll(_HELD):
                        c[
                            block // column_blocks * ROWS
                            + thread // 32 * 16
                            + index // 2 % 2 * 8
                            + thread % 32 // 4,
                            block % column_blocks * COLUMNS + index // 4 * 8 + thread % 4 * 2 + index % 2,
                        ] = sums[index]

    return tvm.IRModule({"main": main})


def copied_unit(number: Any, thread: Any) -> tuple[Any, Any, Any]:
    """Return row and column of the 16 bytes that a thread copies, and their column in the tile."""
    row, column = (number * THREADS + thread) // _RUN, (number * THREADS + thread) % _RUN
    return row, column * _UNIT, (column ^ (row % 8)) * _UNIT


def descriptor_offset(stage: Any, part: Any) -> Any:
    """Return how far a part of a stage's tiles is from the first tile, in units of 16 bytes."""
    return stage * (_STAGE * 2 >> 4) + part * (_INSTRUCTION_DEPTH * 2 >> 4)


def compile_product(size: int) -> CudaLibrary:
    """Compile a square product to device code."""
    return compile_for_cuda(
        product(size, size, size), parse_tvm_target(f'{{"kind":"cuda","arch":"{WGMMA_ARCH}"}}')
    )


def main() -> None:
    """Print ptxas's figures, its log, and how many instructions of each kind the SASS has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4096)
    library = compile_product(parser.parse_args().size)
    for kernel, code in zip(library.kernels, library.codes, strict=True):
        print(kernel, code.log, code.ptx.count("wgmma.mma_async"), "wgmma.mma_async", sep="\n")


if __name__ == "__main__":
    main()
