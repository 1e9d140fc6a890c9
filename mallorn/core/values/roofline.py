"""What a machine takes for a program at least: as if it did nothing but compute, or nothing but move data."""

import re
from collections.abc import Iterable
from math import prod
from typing import Final

from mallorn.core.values.machine import Machine

BITS: Final = re.compile(r"(\d+)$")

Tensor = tuple[str, tuple[int, ...]]  # type and shape


def roofline_us(machine: Machine, flops: float, tensors: Iterable[Tensor]) -> float:
    """For so many operations on what goes in and out, all cores at work and the data as near as they fit."""
    known = list(tensors)
    peak = peak_gflops(machine, {dtype for dtype, _ in known})
    moved = sum(element_bytes(dtype) * prod(shape) for dtype, shape in known)
    return max(flops / peak, moved / _gbytes_per_sec(machine, moved)) / 1e3


def peak_gflops(machine: Machine, dtypes: Iterable[str]) -> float:
    """Of the fastest type that takes part: sums are often kept in a wider one."""
    known = [machine.gflops[dtype] for dtype in dtypes if dtype in machine.gflops]
    return max(known, default=machine.core_gflops * machine.cores)


def _gbytes_per_sec(machine: Machine, moved: float) -> float:
    """Of the nearest level that holds it all, each core its part."""
    fits = (cache for cache in machine.caches if moved / machine.cores <= cache.bytes)
    nearest = next(fits, None)
    return machine.memory_gbytes_per_sec if nearest is None else nearest.gbytes_per_sec * machine.cores


def element_bytes(dtype: str) -> float:
    """Of a type by its name; one without bits in it, as bool, takes a byte."""
    bits = BITS.search(dtype)
    return int(bits[1]) / 8 if bits else 1.0
