"""How programs are compiled for x86-64."""

from mallorn.kinds.cpu_compiler import GRAPHC, OURS, CpuCompiler


class X86Compiler(CpuCompiler):
    intrinsics = (
        "tvm.s_tir.tensor_intrin.x86",
        *OURS,
        f"{GRAPHC}.quant.dot_products",
        f"{GRAPHC}.quant.x86_int8_instructions",
    )
