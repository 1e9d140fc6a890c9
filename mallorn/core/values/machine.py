"""What a machine computes and moves at most, for one target."""

from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value


class Cache(Value):
    """One level of the cache, or memory behind all of them."""

    bytes: Annotated[int, Field(ge=1, description="What one core may fill of it.")]
    gbytes_per_sec: Annotated[float, Field(gt=0, description="What one core reads of it.")]


class Machine(Value):
    """What schedules are made for: measured on a device, or assumed of its target until one was.

    A vector is a register of float32 numbers as wide as pays: a machine that splits wide ones in two may
    be faster with narrow ones.
    """

    cores: Annotated[int, Field(ge=1)]
    lanes: Annotated[int, Field(ge=1, description="float32 numbers in a vector.")]
    registers: Annotated[int, Field(ge=1, description="Vectors that are summed side by side, unspilled.")]
    in_flight: Annotated[int, Field(ge=1, description="Sums at once, below which a core waits for them.")]
    core_gflops: Annotated[float, Field(gt=0, description="float32 products and sums of one core.")]
    gflops: Annotated[
        dict[str, float], Field(description="Products and sums of all cores at once, by type.")
    ] = {}
    caches: Annotated[tuple[Cache, ...], Field(description="Nearest to the core first.")] = ()
    memory_gbytes_per_sec: Annotated[float, Field(gt=0, description="What all cores read at once.")]
    fork_us: Annotated[float, Field(ge=0, description="Until a parallel loop has begun on all cores.")]
    gpu: bool = False
    measured: Annotated[bool, Field(description="False: assumed of the target.")] = False
    disturbed: Annotated[
        bool,
        Field(description="Others had its processors meanwhile: it may compute more, and is measured again."),
    ] = False


def assumed(cores: int, lanes: int, *, gpu: bool = False) -> Machine:
    """A middling machine of this many cores and lanes, until a real one was measured."""
    registers = 28 if lanes >= 16 else 12
    core_gflops = 4.0 * lanes * 2.5
    return Machine(
        cores=cores,
        lanes=lanes,
        registers=registers,
        in_flight=8,
        core_gflops=core_gflops,
        gflops={"float32": core_gflops * cores},
        caches=(
            Cache(bytes=32 << 10, gbytes_per_sec=2 * core_gflops),  # a vector for each operation
            Cache(bytes=1 << 20, gbytes_per_sec=80.0),
            Cache(bytes=4 << 20, gbytes_per_sec=30.0),
        ),
        memory_gbytes_per_sec=10.0 * min(cores, 4),
        fork_us=5.0,
        gpu=gpu,
    )
