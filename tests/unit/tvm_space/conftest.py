"""The intrinsics of CPUs and of CUDA, registered as a worker does it."""

from mallorn.workers.tvm.programs.tensor_intrinsics import load_intrinsics

# Left to an import of TVM's or of a kind of sketch, TVM's parser reads the sources of pytest's whole stack.
load_intrinsics('{"kind":"llvm"}')
load_intrinsics('{"kind":"cuda"}')
