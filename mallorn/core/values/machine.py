"""Peak rates of a machine for a target, and the roofline bound on a program's time.

The bound is the longer of two times: computing only, and moving data only.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Final

from pydantic import Field

from mallorn.core.target_kind import TargetAttrs
from mallorn.core.values.base import Value

BITS: Final = re.compile(r"(?<!\d)(\d+)$")
Tensor = tuple[str, tuple[int, ...]]  # type and shape
Argument = tuple[str, str, Sequence[int]]  # role, type and shape, as stored in the dataset


class Cache(Value):
    """One level of cache, or the memory behind all levels."""

    bytes: Annotated[int, Field(ge=1, description="Bytes that one core may fill.")]
    gbytes_per_sec: Annotated[float, Field(gt=0, description="GB/s that one core reads.")]


class Machine(Value):
    """Peak rates and sizes of a machine, measured on a device or else assumed from its target.

    `lanes` is the fastest vector width, not always the widest: some machines split wide
    vectors in two. On a GPU a core is a multiprocessor, a vector is a warp's register,
    `in_flight` is the number of a core's threads, and the first cache is shared memory.
    """

    cores: Annotated[int, Field(ge=1)]
    lanes: Annotated[int, Field(ge=1, description="float32 numbers in a vector.")]
    registers: Annotated[int, Field(ge=1, description="Vector sums that fit in registers, without spills.")]
    in_flight: Annotated[int, Field(ge=1, description="Sums that a core must overlap to avoid waiting.")]
    core_gflops: Annotated[float, Field(gt=0, description="float32 peak of one core.")]
    gflops: Annotated[dict[str, float], Field(description="Peak of all cores together, by data type.")] = {}
    caches: Annotated[tuple[Cache, ...], Field(description="The one nearest to the core first.")] = ()
    memory_gbytes_per_sec: Annotated[float, Field(gt=0, description="GB/s that all cores read together.")]
    fork_us: Annotated[float, Field(ge=0, description="Time to start a parallel loop on all cores.")]
    gpu: bool = False
    measured: Annotated[bool, Field(description="false: assumed from the target.")] = False
    disturbed: Annotated[
        bool,
        Field(description="Other programs disturbed the probes: it may be faster, and is measured again."),
    ] = False


@dataclass(frozen=True, slots=True)
class AcceleratorAttributes:
    """Attributes that an accelerator's runtime reports; 0 where it reports none."""

    multiprocessors: int = 0
    clock_ghz: float = 0.0
    l2_bytes: int = 0


def assume_typical_cpu(cores: int, lanes: int, registers: int = 0) -> Machine:
    """Return a typical CPU with these cores, float32 lanes and registers for vector sums,
    until one is measured. Without registers, assume those of an x86 CPU with these lanes."""
    registers = registers or (28 if lanes >= 16 else 12)
    core_gflops = 4.0 * lanes * 2.5
    return Machine(
        cores=cores,
        lanes=lanes,
        registers=registers,
        in_flight=8,
        core_gflops=core_gflops,
        gflops={"float32": core_gflops * cores},
        caches=(
            Cache(bytes=32 << 10, gbytes_per_sec=2 * core_gflops),  # one vector per operation
            Cache(bytes=1 << 20, gbytes_per_sec=80.0),
            Cache(bytes=4 << 20, gbytes_per_sec=30.0),
        ),
        memory_gbytes_per_sec=10.0 * min(cores, 4),
        fork_us=5.0,
    )


class MachineKind:
    """The speeds to assume for a kind of hardware until a device is measured; here for a CPU."""

    def assume_machine(
        self,
        attrs: TargetAttrs,
        lanes: int = 1,
        registers: int = 0,
        reported: AcceleratorAttributes | None = None,
    ) -> Machine:
        """Return the speeds of a target. `lanes` and `registers` are the float32 lanes and
        the vectors of sums of its CPU, `reported` what its accelerator says of itself."""
        return assume_typical_cpu(attrs.get("num-cores", 1), lanes, registers)


def machine_limit_us(machine: Machine | None, flops: float, args: Collection[Argument]) -> float | None:
    """Return a program's least time in us; None if rates or its work are unknown."""
    if machine is None or not machine.measured or not (flops or args):
        return None
    return roofline_us(machine, flops, [(str(dtype), tuple(shape)) for _, dtype, shape in args])


def roofline_us(machine: Machine, flops: float, tensors: Iterable[Tensor]) -> float:
    """Return the least time in us of `flops` operations on these tensors.

    It assumes that all cores work, and that the data is in the nearest cache that holds it.
    """
    tensor_list = list(tensors)
    peak = peak_gflops(machine, {dtype for dtype, _ in tensor_list})
    total = sum(element_bytes(dtype) * prod(shape) for dtype, shape in tensor_list)
    # Use the nearest level that holds all data when each core has an equal part.
    rates = (cache.gbytes_per_sec for cache in machine.caches if total / machine.cores <= cache.bytes)
    nearest = next(rates, None)
    rate = machine.memory_gbytes_per_sec if nearest is None else nearest * machine.cores
    return max(flops / peak, total / rate) / 1e3


def peak_gflops(machine: Machine, dtypes: Iterable[str]) -> float:
    """Return the peak GFLOPS of the fastest of these types; sums often use a wider one."""
    peaks = [machine.gflops[dtype] for dtype in dtypes if dtype in machine.gflops]
    return max(peaks, default=machine.core_gflops * machine.cores)


def element_bytes(dtype: str) -> float:
    """Return the bytes of an element of this type; 1 if the name has no bits, as in bool."""
    bits = BITS.search(dtype)
    return int(bits[1]) / 8 if bits else 1.0
