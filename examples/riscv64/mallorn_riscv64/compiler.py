"""How programs are compiled for RISC-V: by LLVM, with TVM's instructions for its vectors."""

from mallorn.kinds.cpu_compiler import OURS, CpuCompiler


class Riscv64Compiler(CpuCompiler):
    intrinsics = ("tvm.s_tir.tensor_intrin.riscv_cpu", *OURS)
