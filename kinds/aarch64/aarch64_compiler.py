"""How programs are compiled for Arm's 64-bit processors."""

from mallorn.kinds.cpu_compiler import GRAPHC, OURS, CpuCompiler


class Aarch64Compiler(CpuCompiler):
    intrinsics = (
        "tvm.s_tir.tensor_intrin.arm_cpu",
        *OURS,
        f"{GRAPHC}.quant.arm_int8_instructions",
        f"{GRAPHC}.quant.arm_fp16_instructions",
    )
