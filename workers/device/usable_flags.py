"""CPU flags that a process may use; on x86-64, the kernel grants AMX tiles only on request."""

import platform
from collections.abc import Mapping, Set
from functools import lru_cache
from typing import Final

from workers.sandbox.seccomp import X86_64
from workers.sandbox.syscall import syscall

#: Instructions for products of narrow numbers: LLVM's feature name -> the kernel's flag.
PRODUCTS: Final = {
    "avx512bf16": "avx512_bf16", "amx-tile": "amx_tile", "amx-int8": "amx_int8", "amx-bf16": "amx_bf16",
}  # fmt: skip
_TILES: Final = "amx_"
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA = 158, 0x1023, 18


def usable_flags(cpu: Mapping[str, str], field: str = "flags") -> set[str]:
    """Return the CPU's flags, without those of AMX if the kernel refuses this process AMX."""
    flags = set(cpu.get(field, "").split())
    tiles = {flag for flag in flags if flag.startswith(_TILES)}
    return flags - tiles if tiles and not tiles_allowed() else flags


@lru_cache(maxsize=1)
def tiles_allowed() -> bool:
    """Request AMX tiles from the kernel and return whether this process may use them."""
    if platform.machine() != X86_64:
        return False
    try:
        return syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA) == 0
    except OSError:
        return False


def feature_differences(flags: Set[str], features: Set[str]) -> list[str]:
    """Return `mattr` entries for product instructions that only one of `flags` and `known` has."""
    present = {name for name, flag in PRODUCTS.items() if flag in flags}
    return [
        f"{'+' if name in present else '-'}{name}"
        for name in PRODUCTS
        if (name in present) != (name in features)
    ]
