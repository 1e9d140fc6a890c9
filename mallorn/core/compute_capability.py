"""Limits of each CUDA compute capability that nvcc 13 compiles for, and the occupancy that follows from them.

Figures are those of CUDA's `cuda_occupancy.h` and CCCL's `cuda/__device/arch_traits.h`.
"""

from dataclasses import dataclass
from typing import Final

from mallorn.core.errors import InvalidTarget

THREADS_PER_BLOCK: Final = 1024
REGISTERS_PER_BLOCK: Final = 65536
SHARED_PER_BLOCK: Final = 48 << 10  # bytes that a kernel has without opting in to more
WARP_SIZE: Final = 32
OLDEST: Final = 75
_WARP_REGISTERS: Final = 256  # the unit in which a warp is given registers
_SCHEDULERS: Final = 4  # of a multiprocessor: each has its own quarter of the registers
# The types that PTX's `mma` multiplies.
_TURING: Final = ("float16", "int8", "int4")
_AMPERE: Final = (*_TURING, "bfloat16", "tfloat32", "float64")
_ADA: Final = (*_AMPERE, "float8_e4m3fn", "float8_e5m2")
# Compute capability: KiB of shared memory, threads and blocks of a multiprocessor, tensor core types, and the
# suffixes with which nvcc compiles for it ("a": this GPU only, "f": its family).
_TABLE: Final = {
    75: (64, 1024, 16, _TURING, ""),
    80: (164, 2048, 32, _AMPERE, ""),
    86: (100, 1536, 16, _AMPERE, ""),
    87: (164, 1536, 16, _AMPERE, ""),
    88: (100, 1536, 16, _AMPERE, ""),
    89: (100, 1536, 24, _ADA, ""),
    90: (228, 2048, 32, _ADA, "a"),
    100: (228, 2048, 32, _ADA, "af"),
    103: (228, 2048, 32, _ADA, "af"),
    110: (228, 1536, 24, _ADA, "af"),
    120: (100, 1536, 24, _ADA, "af"),
    121: (100, 1536, 24, _ADA, "af"),
}
KNOWN_ARCHS: Final = tuple(
    f"sm_{number}{suffix}" for number, row in _TABLE.items() for suffix in ("", *row[4])
)
_KNOWN: Final = f"known: {', '.join(KNOWN_ARCHS)}"


@dataclass(frozen=True)
class ComputeCapability:
    """Limits of one GPU architecture; sizes in bytes, registers of 32 bits."""

    arch: str
    number: int  # 10 * major + minor
    shared_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int
    tensor_core_types: tuple[str, ...]
    registers_per_sm: int = 65536
    registers_per_thread_max: int = 255
    shared_per_block: int = SHARED_PER_BLOCK
    warp_size: int = WARP_SIZE

    @property
    def shared_reserved(self) -> int:
        """Bytes of shared memory that the driver takes for itself in each block."""
        return 1024 if self.number >= 80 else 0

    @property
    def shared_per_block_optin(self) -> int:
        """Bytes of shared memory that a kernel may have after `cudaFuncSetAttribute`."""
        return self.shared_per_sm - self.shared_reserved

    def resident_blocks(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Return how many blocks of a kernel run on one multiprocessor at a time; 0 if it cannot launch.

        `registers` are those of one thread. Shared memory above `shared_per_block` is assumed to be opted in.
        """
        if threads > THREADS_PER_BLOCK or registers > self.registers_per_thread_max:
            return 0
        if shared_bytes > self.shared_per_block_optin:
            return 0
        warps = -(-threads // self.warp_size)
        of_a_warp = max(_round_up(registers * self.warp_size, _WARP_REGISTERS), _WARP_REGISTERS)
        if of_a_warp * _round_up(warps, _SCHEDULERS) > REGISTERS_PER_BLOCK:
            return 0
        warps_with_registers = self.registers_per_sm // _SCHEDULERS // of_a_warp * _SCHEDULERS
        unit = 128 if self.number >= 80 else 256
        shared = max(_round_up(shared_bytes + self.shared_reserved, unit), 1)
        return min(
            self.blocks_per_sm,
            self.threads_per_sm // self.warp_size // warps,
            warps_with_registers // warps,
            self.shared_per_sm // shared,
        )


def capability(arch: str) -> ComputeCapability:
    """Return the limits of an architecture such as `sm_80` or `sm_90a`.

    Raises InvalidTarget for an architecture that nvcc 13 does not compile for, or that is not in the table.
    """
    digits = arch.removeprefix("sm_").rstrip("af")
    if arch in KNOWN_ARCHS:
        number = int(digits)
        shared, threads, blocks, types, _ = _TABLE[number]
        return ComputeCapability(arch, number, shared << 10, threads, blocks, types)
    if digits.isdecimal() and int(digits) < OLDEST:
        raise InvalidTarget(
            f"nvcc 13 does not compile for {arch}: sm_{OLDEST} is the oldest GPU that it knows"
        )
    raise InvalidTarget(f"unknown GPU architecture {arch!r}", hint=f"known: {', '.join(KNOWN_ARCHS)}")


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
