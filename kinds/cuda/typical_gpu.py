"""A typical GPU of each CUDA architecture, whose speed is assumed until it is measured."""

from typing import Final

from mallorn.core.target_kind import TargetAttrs
from mallorn.core.values.machine import AcceleratorAttributes, Cache, Machine, MachineKind
from mallorn.kinds.cuda import compute_capability as cuda

_MIDDLING: Final = "sm_86"


def assume_typical_gpu(arch: str = _MIDDLING, device: AcceleratorAttributes | None = None) -> Machine:
    """Return a typical GPU of a CUDA architecture, or of sm_86 for an unknown one. Its rates
    are scaled to the multiprocessors and the clock of `device`, where those are known."""
    device = device or AcceleratorAttributes()
    is_known = arch in cuda.KNOWN_ARCHS and str(cuda.capability(arch).number) in cuda.GPUS["typical_gpus"]
    limits = cuda.capability(arch if is_known else _MIDDLING)
    row = cuda.GPUS["typical_gpus"][str(limits.number)]
    typical_ghz = 1e3 * row["tflops"] / row["multiprocessors"] / row["lanes"] / 2
    cores, clock_ghz = device.multiprocessors or row["multiprocessors"], device.clock_ghz or typical_ghz
    scale = 1e3 * cores / row["multiprocessors"] * clock_ghz / typical_ghz
    memory, tensor = float(row["gbytes_per_sec"]), scale * row["tensor_tflops"]
    gflops = {"float32": scale * row["tflops"], "float16": tensor, "int8": 2 * tensor}
    gflops |= {"bfloat16": tensor, "tfloat32": tensor / 2}
    nearest = Cache(bytes=limits.shared_per_sm, gbytes_per_sec=cuda.BANKS * cuda.BANK_BYTES * clock_ghz)
    l2_bytes = (device.l2_bytes or row["l2_mib"] << 20) // cores
    return Machine(
        cores=cores,
        lanes=cuda.WARP_SIZE,
        registers=cuda.REGISTERS_PER_SM // cuda.WARP_SIZE,
        in_flight=limits.threads_per_sm,
        core_gflops=gflops["float32"] / cores,
        gflops=gflops,
        caches=(nearest, Cache(bytes=l2_bytes, gbytes_per_sec=2.0 * memory / cores)),
        memory_gbytes_per_sec=memory,
        fork_us=2.0,
        gpu=True,
    )


class CudaMachines(MachineKind):
    def assume_machine(
        self,
        attrs: TargetAttrs,
        lanes: int = 1,
        registers: int = 0,
        reported: AcceleratorAttributes | None = None,
    ) -> Machine:
        return assume_typical_gpu(attrs.get("arch", ""), reported)
