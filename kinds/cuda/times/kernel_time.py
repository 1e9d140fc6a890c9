"""The time of a GPU kernel from what its blocks compute, load and keep.

A multiprocessor runs as many blocks at a time as registers, threads and shared memory
allow. The blocks of one such round share its units; the last round may have fewer blocks.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.values.machine import Machine
from mallorn.costmodels.base import Column
from mallorn.kinds.cuda import compute_capability as cuda

VECTOR_BYTES: Final = 16  # of the widest load
LATENCY_US: Final = 0.7  # of a load from memory, with the barriers of a step
OVERHEAD_REGISTERS: Final = 32  # of a thread, for addresses and counters
RESULTS_FILLED: Final = 1024.0  # results in progress that saturate a multiprocessor
FRAGMENTS_FILLED: Final = 16.0  # 16x16 fragments in progress that saturate its tensor cores
_UNROLLED: Final = 4.0  # iterations of a loop that nvcc overlaps
_MOST_AHEAD: Final = 8.0  # and those of an unrolled loop
_SCHEDULERS: Final = 4  # of a multiprocessor; each issues one instruction in a cycle
_MOST_BLOCKS: Final = 32  # on a multiprocessor
_EXPOSED: Final = 0.02  # of the shorter one of two times that overlap
_SPILLED: Final = 4  # power with which registers beyond a thread's limit slow a kernel down
_REFUSED: Final = 1e3  # times as long is a kernel that cannot be launched


@dataclass(frozen=True, slots=True)
class KernelWork:
    """The kernel of each candidate, as columns; work is that of one block."""

    blocks: Column
    threads: Column  # of a block
    registers: Column  # of a thread
    shared_bytes: Column  # that a block reserves
    steps: Column  # serial steps, each of which waits for its loads
    bytes_in_flight: Column  # that a block requests before it waits
    l2_bytes: Column  # loaded and stored, in whole sectors
    memory_bytes: Column  # of all blocks, from and to memory
    instructions: Column  # that its warps issue
    shared_traffic: Column  # bytes to and from shared memory; a bank conflict repeats an access
    operations: Column  # on the units of `peak_gflops`
    peak_gflops: float  # of all multiprocessors
    filling: Column  # share of those units that the block's independent operations fill
    is_refused: NDArray[np.bool_] | bool = False  # whether no compiler accepts it
    stages: float = 1.0  # steps whose loads are in flight at a time
    extra_us: Column | float = 0.0  # of further kernels


def kernel_us(kernel: KernelWork, machine: Machine, shared_limit: int | None = None) -> Column:
    """Return the estimated times. Kernels that need more threads or shared memory than a
    block may have get very long ones."""
    warps = np.ceil(kernel.threads / cuda.WARP_SIZE)
    # ptxas spills registers beyond the limit.
    register_limit = np.minimum(cuda.REGISTERS_PER_THREAD, machine.registers // warps)
    registers = np.minimum(kernel.registers, register_limit)
    resident = resident_blocks(machine, warps, registers, kernel.shared_bytes)
    is_refused = kernel.is_refused | (kernel.threads > cuda.THREADS_PER_BLOCK) | (resident < 1)
    if shared_limit is not None:
        is_refused |= kernel.shared_bytes > shared_limit
    resident = np.maximum(resident, 1)
    full_rounds = kernel.blocks // (machine.cores * resident)
    last = np.ceil((kernel.blocks - full_rounds * machine.cores * resident) / machine.cores)
    rounds = full_rounds * _round_us(kernel, machine, resident)
    rounds += np.where(last > 0, _round_us(kernel, machine, np.maximum(last, 1)), 0)
    # By Little's law the bandwidth needs so many bytes in flight.
    active = np.clip(np.ceil(kernel.blocks / machine.cores), 1, resident)
    requested_bytes = np.minimum(kernel.blocks, machine.cores * active) * kernel.bytes_in_flight
    needed_bytes = machine.memory_gbytes_per_sec * 1e3 * LATENCY_US
    streaming = (
        kernel.memory_bytes
        / machine.memory_gbytes_per_sec
        / 1e3
        / np.minimum(1, requested_bytes / needed_bytes)
    )
    spills = np.maximum(1, kernel.registers / np.maximum(1, register_limit)) ** _SPILLED
    longest = np.maximum(rounds, streaming)
    overlapped = longest + _EXPOSED * np.minimum(rounds, streaming)
    total = (overlapped + machine.fork_us + kernel.extra_us) * spills
    return np.asarray(np.where(is_refused, _REFUSED * total, total))


def resident_blocks(machine: Machine, warps: Column, registers: Column, shared_bytes: Column) -> Column:
    """Return how many blocks of so many warps a multiprocessor runs at a time."""
    limits = [
        np.full(len(warps), float(_MOST_BLOCKS)),
        machine.in_flight // (warps * cuda.WARP_SIZE),
        machine.registers // np.maximum(1, warps * registers),
        machine.caches[0].bytes // (shared_bytes + cuda.SHARED_RESERVED),
    ]
    return np.asarray(np.minimum.reduce(limits))


def iterations_ahead(iterations: Column, steps: Column, unrolled_steps: Column) -> Column:
    """Return how many iterations of a loop, with so many innermost steps each, have their
    loads in flight at a time. A loop is unrolled if it has at most `unrolled_steps` in all."""
    is_unrolled = iterations * steps <= unrolled_steps
    return np.asarray(np.clip(iterations, 1, np.where(is_unrolled, _MOST_AHEAD, _UNROLLED)))


def _round_us(kernel: KernelWork, machine: Machine, active: Column) -> Column:
    """Return how long `active` blocks on each multiprocessor take."""
    shared_memory, l2 = machine.caches[:2]
    clock_ghz = shared_memory.gbytes_per_sec / (cuda.BANKS * cuda.BANK_BYTES)
    # Each scheduler has a quarter of the units, and a warp belongs to one of them.
    warps = np.ceil(kernel.threads / cuda.WARP_SIZE)
    schedulers = np.minimum(_SCHEDULERS, active * warps)
    filled_share = np.minimum(schedulers / _SCHEDULERS, active * kernel.filling)
    computing = kernel.operations / (kernel.peak_gflops / machine.cores) / filled_share
    issuing = kernel.instructions / (schedulers * clock_ghz)
    parts = active * np.array(
        [
            np.maximum(computing, issuing),
            kernel.l2_bytes / l2.gbytes_per_sec,
            kernel.shared_traffic / shared_memory.gbytes_per_sec,
        ]
    )
    slowest = parts.max(axis=0)
    at_once = active * (1 if kernel.stages == 1 else np.minimum(warps, _SCHEDULERS))
    working = (slowest + (parts.sum(axis=0) - slowest) / at_once) / 1e3
    waiting = kernel.steps * LATENCY_US
    if kernel.stages > 1:  # loads are requested some steps before they are needed
        return np.asarray(np.maximum(working, waiting / (kernel.stages - 1)))
    return np.asarray(working + waiting / active)
