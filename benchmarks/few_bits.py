"""Rate at which products read weights of 4 or 8 bits, compared with the memory rate.

    python -m benchmarks.few_bits [--threads 2] [--bits 4] [--block 32] [--shapes 896x4864,896x151936]

Takes one row of inputs, the first guess without trials, the minimum of 60 times. Weights in a cache are
read faster than memory; the largest shape shows the share of the memory rate, that of numpy's sums.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor

SHAPES = "4096x4096,896x4864,4864x896,896x151936"
REPEATS, STREAMED = 60, 1 << 28  # timed runs of a product; bytes that each thread sums


def main() -> None:
    """Print a line for memory and one for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--shapes", default=SHAPES, help="inputs x outputs, with commas")
    args = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(args.threads)
    streaming = memory(args.threads)
    print(f"memory: {streaming:.1f} GB/s, {args.threads} threads")
    for shape in args.shapes.split(","):
        inputs, outputs = map(int, shape.split("x"))
        seconds, size = product(inputs, outputs, args.bits, args.block, args.threads)
        rate = size / seconds / 1e9
        figures = f"{seconds * 1e6:.0f} us, {size / 1e6:.1f} MB, {rate:.1f} GB/s"
        print(f"{shape}: {figures}, {rate / streaming:.2f} of memory's rate")


def memory(threads: int) -> float:
    """Return the GB/s at which `threads` threads sum arrays together."""
    import numpy as np

    arrays = [np.ones(STREAMED // 8) for _ in range(threads)]
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(8):
            started = time.perf_counter()
            list(pool.map(np.sum, arrays))
            best = min(best, time.perf_counter() - started)
    return threads * STREAMED / best / 1e9


def product(inputs: int, outputs: int, bits: int, block: int, threads: int) -> tuple[float, int]:
    """Return a product's seconds, and the bytes of its weights and scales."""
    import numpy as np
    import tvm

    from mallorn.core.targets import parse_target
    from mallorn.core.values.machine import assume_typical_cpu
    from mallorn.graphc.quant import block_quantized_matmul_function, llvm_byte_dot_products
    from mallorn.searchers.roller.rank_candidates import ranked
    from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
    from mallorn.workers.tvm.programs.loop_nests import nests
    from mallorn.workers.tvm.space.rebuild_schedule import rebuild
    from mallorn.workers.tvm.space.sketches import design_space

    target = parse_target(
        {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": threads}
    )
    with as_tvm_target(target.text):
        instruction = llvm_byte_dot_products.best_instruction()
    if instruction is None:
        raise SystemExit("this processor has no AVX2")
    matmul = block_quantized_matmul_function.BlockQuantizedMatmul(
        instruction, (1,), outputs, inputs // block, block, bits, 1 << (bits - 1)
    )
    mod = tvm.IRModule(
        {"main": block_quantized_matmul_function.build_function(matmul).with_attr("global_symbol", "main")}
    )
    tir = tvm.ir.save_json(mod)
    first, *_ = ranked(
        design_space(tir, target.text), nests(tir), assume_typical_cpu(threads, instruction.lanes), 1
    )
    (sketch,) = (each for each in design_space(tir, target.text) if each.key == first.sketch)
    schedule = rebuild(tir, target.text, sketch.trace, first.decisions)
    if schedule is None:
        raise SystemExit("the first guess is not valid")
    library = tvm.compile(schedule.mod, target=as_tvm_target(target.text)).jit()
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (matmul.vectors, matmul.blocks, matmul.weight_block_bytes)).astype("uint8")
    scales = rng.random((matmul.vectors, matmul.blocks, instruction.lanes)).astype("float32")
    x = rng.standard_normal((1, inputs)).astype("float32")
    arrays = map(tvm.runtime.tensor, (x, packed, scales, np.zeros((1, outputs), "float32")))
    times = library.time_evaluator("main", tvm.cpu(), number=1, repeat=REPEATS)(*arrays).results
    return min(times), packed.nbytes + scales.nbytes


if __name__ == "__main__":
    main()
