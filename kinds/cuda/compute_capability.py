"""Limits of the CUDA architectures that nvcc 13 supports, and a kernel's occupancy."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from mallorn.core.errors import InvalidTarget
from mallorn.core.storable_json import TOLD

GPUS: Final = tomllib.loads(files(__package__).joinpath("cuda_gpus.toml").read_text())
THREADS_PER_BLOCK: Final = 1024
REGISTERS_PER_BLOCK: Final = 65536
REGISTERS_PER_SM: Final = 65536
REGISTERS_PER_THREAD: Final = 255
SHARED_RESERVED: Final = 1 << 10  # bytes of each block that the driver reserves, from sm_80 on
SHARED_PER_BLOCK: Final = 48 << 10  # bytes for a kernel that does not opt in to more
WARP_SIZE: Final = 32
SECTOR: Final = 32  # bytes of the smallest memory transaction
BANKS, BANK_BYTES = 32, 4  # of shared memory: each moves so many bytes in a cycle
_WARP_REGISTERS: Final = 256  # granularity of register allocation to a warp
_SCHEDULERS: Final = 4  # per multiprocessor; each has a quarter of the registers
_OLDEST: Final = 75
AMPERE: Final = 80  # number from which `mma` m16n8k16 and asynchronous copies exist
_TEGRA: Final = 87  # CUDA guarantees no binary compatibility between it and desktop GPUs
KNOWN_ARCHS: Final = tuple(
    f"sm_{number}{suffix}"
    for number, row in GPUS["capabilities"].items()
    for suffix in sorted(row["suffixes"])
)


@dataclass(frozen=True)
class ComputeCapability:
    """Limits of one GPU architecture. Sizes are in bytes, and a register has 32 bits."""

    arch: str
    number: int  # 10 * major + minor
    shared_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int
    tensor_core_types: tuple[str, ...]

    @property
    def shared_reserved(self) -> int:
        """Bytes of shared memory that the driver reserves in each block."""
        return SHARED_RESERVED if self.number >= AMPERE else 0

    @property
    def shared_per_block_optin(self) -> int:
        """Bytes of shared memory that a block may have if its kernel opts in to more."""
        return self.shared_per_sm - self.shared_reserved

    def can_share(self, static_bytes: int, dynamic_bytes: int) -> bool:
        """Return whether TVM's runtime can launch blocks with these sizes of shared memory.

        It opts in to more than SHARED_PER_BLOCK only if the dynamic part has that size.
        """
        opts_in = dynamic_bytes >= SHARED_PER_BLOCK
        most_bytes = self.shared_per_block_optin if opts_in else SHARED_PER_BLOCK
        return static_bytes <= SHARED_PER_BLOCK and static_bytes + dynamic_bytes <= most_bytes

    def resident_blocks(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Return how many blocks of a kernel fit on a multiprocessor; 0 if it cannot launch.

        `registers` are those of one thread. The kernel is assumed to opt in to all the
        shared memory that it uses.
        """
        if threads > THREADS_PER_BLOCK or registers > REGISTERS_PER_THREAD:
            return 0
        if shared_bytes > self.shared_per_block_optin:
            return 0
        warps = -(-threads // WARP_SIZE)
        registers_per_warp = max(_round_up(registers * WARP_SIZE, _WARP_REGISTERS), _WARP_REGISTERS)
        if registers_per_warp * _round_up(warps, _SCHEDULERS) > REGISTERS_PER_BLOCK:
            return 0
        warps_with_registers = REGISTERS_PER_SM // _SCHEDULERS // registers_per_warp * _SCHEDULERS
        unit = 128 if self.number >= AMPERE else 256
        return min(
            self.blocks_per_sm,
            self.threads_per_sm // WARP_SIZE // warps,
            warps_with_registers // warps,
            self.shared_per_sm // max(_round_up(shared_bytes + self.shared_reserved, unit), 1),
        )


def capability(arch: str) -> ComputeCapability:
    """Return the limits of an architecture, as ``sm_90a``. Raises InvalidTarget if unknown."""
    if arch in KNOWN_ARCHS:
        number = _number(arch)
        row, types = GPUS["capabilities"][str(number)], GPUS["tensor_core_types"].items()
        tensor = tuple(name for oldest, names in types if int(oldest) <= number for name in names)
        return ComputeCapability(arch, number, row["shared_kib"] << 10, row["threads"], row["blocks"], tensor)
    hint = f"known: {', '.join(KNOWN_ARCHS)}"
    if is_obsolete(arch):
        message = f"nvcc 13 no longer compiles for {arch}, only for sm_{_OLDEST} and newer"
        raise InvalidTarget(message, hint=hint)
    raise InvalidTarget(f"unknown GPU architecture {arch[:TOLD]!r}", hint=hint)


def is_obsolete(arch: str) -> bool:
    """Return whether nvcc 13 no longer compiles for this architecture."""
    return 0 < _number(arch) < _OLDEST


def arch_of_gpu(number: int) -> str:
    """Return the architecture to compile for on a GPU of compute capability `number`.

    `number` is 10 * major + minor. The result is spelled as in TVM's tags. Raises
    InvalidTarget as `capability` does.
    """
    row = GPUS["capabilities"].get(str(number), {"suffixes": [""]})
    return capability(f"sm_{number}{row['suffixes'][0]}").arch


def runs_on(arch: str, number: int) -> bool:
    """Return whether a GPU of compute capability `number` can run a cubin built for `arch`.

    It can if the major versions are equal and its minor version is not lower. Both must be
    equal if `arch` has a suffix or one of the two is sm_87 (Jetson).
    """
    arch_number = _number(arch)
    if arch.endswith(("a", "f")) or _TEGRA in (arch_number, number):
        return arch_number == number
    return arch_number // 10 == number // 10 and arch_number <= number


def _number(arch: str) -> int:
    digits = arch.removeprefix("sm_").rstrip("af")
    return int(digits) if digits.isdecimal() and len(digits) <= 3 else 0


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
