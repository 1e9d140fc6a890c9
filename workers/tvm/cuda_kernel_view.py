"""Compute the view `kernels` of a CUDA candidate from its lowered program, without nvcc.

Executed work is counted by loop extents; both branches of a condition count. An access is
looked at once, for the first warp of the first block in the first iteration of all loops.
"""

import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tvm.ir import Call, TensorLoad
from tvm.tirx import (
    Add,
    AllocBuffer,
    AttrStmt,
    Bind,
    BufferStore,
    Cast,
    Evaluate,
    For,
    IfThenElse,
    IntImm,
    Mul,
    Ramp,
    SeqStmt,
    Sub,
    Var,
)
from tvm_ffi import structural_walk

from mallorn.core.compute_capability import REGISTERS_PER_BLOCK, REGISTERS_PER_THREAD, capability
from mallorn.core.values.machine import Machine, assume_typical_gpu, element_bytes
from mallorn.searchers.space import Matrix

Lanes = NDArray[np.int64]
SECTOR: Final = 32  # bytes that memory moves at least
BANK: Final = 4  # bytes of each of shared memory's 32 banks
PASS: Final = 128  # bytes that all banks move at once
LARGEST: Final = 3  # buffers with columns of their own
BASE_REGISTERS: Final = 24  # addresses and loop counters of a thread
# Fewer active warps of a multiprocessor hide less latency of arithmetic, and of loads.
COMPUTING_WARPS: Final = 8
LOADING_WARPS: Final = 16
_AXES: Final = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_,
    "BitwiseXor": operator.xor,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
    "Min": np.minimum,
    "Max": np.maximum,
    **dict.fromkeys(("Div", "FloorDiv"), lambda a, b: a // np.where(b == 0, 1, b)),
    **dict.fromkeys(("Mod", "FloorMod"), lambda a, b: a % np.where(b == 0, 1, b)),
}
_BARRIER: Final = "tvm_storage_sync"
_ASYNC_COMMIT: Final = "async_commit_queue_scope"
_SUMS: Final = ("arithmetic", "tensor_products", "barriers", "async_groups", "shuffles", "statements")
_TRAFFIC: Final = ("loads", "stores", "shared")
KERNEL_COLUMNS: Final = (
    *("kernels", "blocks", "threads", "static_shared_bytes", "dynamic_shared_bytes"),
    *("registers", "spilled_registers", "blocks_per_sm", "waves"),
    *_SUMS,
    *("occupancy", "balance"),
    *(f"{kind} {part}" for kind in _TRAFFIC for part in ("bytes", "efficiency", "bytes a lane")),
    *(f"buffer {place} {part}" for place in range(LARGEST) for part in ("reads", "efficiency")),
    *("compute_time", "memory_time", "cache_time", "shared_time", "spill_time", "modelled_time"),
)


@dataclass
class Traffic:
    """Bytes that a warp asks for and that the memory moves, and its number of accesses."""

    used: float = 0.0
    moved: float = 0.0
    accesses: float = 0.0

    def add(self, used: float, moved: float, accesses: float) -> None:
        self.used, self.moved, self.accesses = self.used + used, self.moved + moved, self.accesses + accesses


@dataclass
class KernelWork:
    """What one warp of a lowered kernel does, its launch sizes and its memory."""

    extents: dict[str, int] = field(default_factory=dict)  # of thread and block axes
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_SUMS, 0.0))
    traffic: dict[str, Traffic] = field(default_factory=lambda: {kind: Traffic() for kind in _TRAFFIC})
    reads: dict[int, Traffic] = field(default_factory=lambda: defaultdict(Traffic))  # by buffer
    footprint: dict[int, int] = field(default_factory=dict)  # bytes by buffer in global memory
    tensor_flops: float = 0.0
    sum_bytes: float = 0.0  # of registers that arithmetic and tensor products add to
    tensor_type: str = "float16"
    is_narrow: bool = False  # whether some elements in memory have fewer than 32 bits
    local_bytes: float = 0.0  # of a thread
    shared_bytes: dict[str, int] = field(default_factory=lambda: {"shared": 0, "shared.dyn": 0})

    @property
    def threads(self) -> int:
        return prod(self.extents.get(axis, 1) for axis in _AXES)

    @property
    def blocks(self) -> int:
        return prod(size for axis, size in self.extents.items() if axis.startswith("blockIdx"))

    @property
    def warps(self) -> int:
        return self.blocks * -(-self.threads // 32)


class _KernelReader:
    """Reads a kernel statement by statement; `values` are variables' values in a warp."""

    def __init__(self) -> None:
        self.work = KernelWork()
        self._values: dict[int, Lanes] = {}

    def visit(self, statement: Any, times: float) -> None:
        match statement:
            case SeqStmt():
                for part in statement.seq:
                    self.visit(part, times)
            case For():
                self.visit(statement.body, times * int(statement.extent))
            case IfThenElse():
                self.visit(statement.then_case, times)
                if statement.else_case is not None:
                    self.visit(statement.else_case, times)
            case AttrStmt():
                if statement.attr_key == "thread_extent":
                    self._bind_axis(statement.node, int(statement.value))
                self.work.sums["async_groups"] += times * (statement.attr_key == _ASYNC_COMMIT)
                self.visit(statement.body, times)
            case AllocBuffer():
                self._allocate(statement.buffer)
            case Bind():
                self._values[hash(statement.var)] = self._evaluate(statement.value)
                self._visit_expression(statement.value, times)
            case BufferStore():
                self.work.sums["statements"] += 1
                self._access(statement.buffer, statement.indices, times, is_store=True)
                self._visit_expression(statement.value, times)
            case Evaluate():
                self.work.sums["statements"] += 1
                self._visit_expression(statement.value, times)

    def _bind_axis(self, axis: Any, extent: int) -> None:
        self.work.extents[axis.thread_tag] = extent
        lane = np.arange(32, dtype=np.int64)
        for tag in _AXES[: _AXES.index(axis.thread_tag)] if axis.thread_tag in _AXES else ():
            lane //= self.work.extents.get(tag, 1)
        lanes = lane % extent if axis.thread_tag in _AXES else np.zeros_like(lane)
        self._values[hash(axis.var)] = lanes

    def _allocate(self, buffer: Any) -> None:
        size, scope = _elements(buffer) * _item_bytes(buffer), str(buffer.scope())
        if scope in self.work.shared_bytes:
            self.work.shared_bytes[scope] += size
        else:
            self.work.local_bytes += size / (32 if scope.startswith("wmma") else 1)

    def _visit_expression(self, expression: Any, times: float) -> None:
        addresses: set[int] = set()

        def visit(node: Any) -> None:
            match node:
                case Call():
                    addresses.update(self._call(node, times))
                case TensorLoad() if hash(node) not in addresses:
                    self._access(node.source, node.indices, times)
                case Add() | Sub() | Mul() if "float" in (dtype := str(node.ty.dtype)):
                    lanes = int(dtype.partition("x")[2] or 1)
                    self.work.sums["arithmetic"] += times * lanes
                    self.work.sum_bytes += 32 * 4.0 * times * lanes

        structural_walk(expression, ((Call, TensorLoad, Add, Sub, Mul), visit), order="pre")

    def _call(self, call: Any, times: float) -> list[int]:
        """Count a call of an intrinsic; return the hashes of loads that only name addresses."""
        name = str(getattr(call.op, "name", "")).rpartition(".")[2]
        arguments = call.args
        if name == "address_of":
            return [hash(arguments[0])]
        if name == _BARRIER:
            self.work.sums["barriers"] += times
        elif "shfl" in name:
            self.work.sums["shuffles"] += times
        elif name in ("mma", "tvm_mma_sync"):
            self._add_tensor_product(name, arguments, times)
        elif name in ("tvm_load_matrix_sync", "tvm_store_matrix_sync"):
            self._add_fragment(arguments, times, is_store="store" in name)
        elif name == "ldmatrix":
            self._add_matrices(arguments, times)
        elif name.startswith("cp_async") and len(arguments) > 5:
            self._add_async_copy(arguments, times)
        return []

    def _add_tensor_product(self, name: str, arguments: Sequence[Any], times: float) -> None:
        sizes = (16, 16, 16)
        if name == "mma":
            shape = str(arguments[0].value).replace("n", " ").replace("k", " ")
            sizes = tuple(int(size) for size in shape.removeprefix("m").split())  # type: ignore[assignment]
            self.work.tensor_type = str(arguments[3].value)
        self.work.sums["tensor_products"] += times
        self.work.tensor_flops += 2.0 * prod(sizes) * times
        self.work.sum_bytes += 8.0 * prod(sizes[:2]) * times

    def _add_fragment(self, arguments: Sequence[Any], times: float, is_store: bool) -> None:
        load, stride = arguments[5].args[0], int(arguments[6])
        rows = np.arange(16, dtype=np.int64) * stride * _item_bytes(load.source)
        self._count(load.source, np.repeat(rows, 2) + np.tile([0, 16], 16), 16, times, is_store)

    def _add_matrices(self, arguments: Sequence[Any], times: float) -> None:
        pointer = next(
            arg for arg in arguments if getattr(getattr(arg, "op", None), "name", "")[-10:] == "address_of"
        )
        load = pointer.args[0]
        lanes = self._evaluate(load.indices[0])[: 8 * int(arguments[1])] * _item_bytes(load.source)
        self._count(load.source, lanes, 16, times, is_store=False)

    def _add_async_copy(self, arguments: Sequence[Any], times: float) -> None:
        width = int(arguments[-1])
        for place in (1, 3):  # into shared memory, from global memory
            buffer = arguments[place].args[0]
            lanes = self._evaluate(arguments[place + 1]) * _item_bytes(buffer)
            self._count(buffer, lanes, width, times, is_store=place == 1)

    def _access(self, buffer: Any, indices: Sequence[Any], times: float, is_store: bool = False) -> None:
        index, item = indices[-1], _item_bytes(buffer)
        lanes = np.broadcast_to(self._evaluate(index), (32,)) * item
        width, stride = (int(index.lanes), int(index.stride)) if isinstance(index, Ramp) else (1, 1)
        if stride == 1:
            self._count(buffer, lanes, width * item, times, is_store)
        else:
            for step in range(width):
                self._count(buffer, lanes + step * stride * item, item, times, is_store)

    def _count(self, buffer: Any, lanes: Lanes, width: int, times: float, is_store: bool) -> None:
        """Count an access of `width` bytes of each lane at these byte offsets."""
        scope = str(buffer.scope())
        active = lanes[: self.work.threads]
        used = float(width * len(np.unique(active)))
        if scope in ("global", ""):
            sectors = {
                (lane + byte) // SECTOR for lane in active.tolist() for byte in range(0, width, SECTOR)
            }
            last = {(lane + width - 1) // SECTOR for lane in active.tolist()}
            moved = float(SECTOR * len(sectors | last))
            traffic = [self.work.traffic["stores" if is_store else "loads"]]
            self.work.footprint[hash(buffer)] = _elements(buffer) * _item_bytes(buffer)
            self.work.is_narrow |= _item_bytes(buffer) < 4
            traffic += [] if is_store else [self.work.reads[hash(buffer)]]
        elif scope.startswith("shared"):
            moved, traffic = float(PASS * _passes(active, width)), [self.work.traffic["shared"]]
        else:
            return
        for each in traffic:
            each.add(times * used, times * moved, times * len(active))

    def _evaluate(self, expression: Any) -> Lanes:
        """Return an integer expression's value in each lane; 0 where it is unknown."""
        match expression:
            case IntImm():
                return np.int64(int(expression))  # type: ignore[return-value]
            case Var():
                return self._values.get(hash(expression), np.int64(0))  # type: ignore[arg-type]
            case Cast():
                return self._evaluate(expression.value)
            case Ramp():
                return self._evaluate(expression.base)
        apply = _OPERATORS.get(type(expression).__name__)
        if apply is None:
            return np.int64(0)  # type: ignore[return-value]
        return apply(self._evaluate(expression.a), self._evaluate(expression.b))  # type: ignore[no-any-return]


def _passes(lanes: Lanes, width: int) -> int:
    """Return how many times the banks of shared memory work for one access of a warp."""
    words = np.unique((lanes[:, None] + np.arange(0, max(width, BANK), BANK)) // BANK)
    return int(np.bincount(words % 32, minlength=32).max())


def _elements(buffer: Any) -> int:
    return prod(int(extent) if isinstance(extent, IntImm) else 1 for extent in buffer.shape)


def _item_bytes(buffer: Any) -> int:
    return max(1, int(element_bytes(str(buffer.dtype))))


@dataclass(frozen=True, slots=True)
class _Launch:
    """How a kernel's blocks share the multiprocessors; its registers are an estimate."""

    registers: int
    spilled: int  # registers of a thread beyond those that it can have
    resident: int  # blocks of a multiprocessor
    occupancy: float
    waves: float
    balance: float  # mean work of a multiprocessor over the most that one has
    active_warps: int  # of the multiprocessor with most work


def _launch(work: KernelWork, arch: str, machine: Machine) -> _Launch:
    gpu = capability(arch)
    wanted = BASE_REGISTERS + ceil(work.local_bytes / 4)
    limit = min(REGISTERS_PER_THREAD, REGISTERS_PER_BLOCK // max(32, work.threads))
    registers, shared = min(wanted, limit), sum(work.shared_bytes.values())
    resident = max(1, gpu.resident_blocks(work.threads, registers, shared))
    warps = -(-work.threads // gpu.warp_size)
    most = -(-work.blocks // machine.cores)
    return _Launch(
        registers=registers,
        spilled=wanted - registers,
        resident=resident,
        occupancy=min(1.0, resident * warps * gpu.warp_size / gpu.threads_per_sm),
        waves=work.blocks / (machine.cores * resident),
        balance=work.blocks / (machine.cores * most),
        active_warps=min(resident, most) * warps,
    )


def _times_us(work: KernelWork, launch: _Launch, machine: Machine) -> list[float]:
    """Return the times of arithmetic, memory, second cache, shared memory and spilled registers."""
    tensor_rate = machine.gflops.get(work.tensor_type, machine.gflops["float16"])
    flops_us = 32 * work.sums["arithmetic"] / machine.gflops["float32"] + work.tensor_flops / tensor_rate
    moved = work.traffic["loads"].moved + work.traffic["stores"].moved
    l1, l2 = (cache.gbytes_per_sec * machine.cores for cache in machine.caches[:2])
    warps = work.warps / 1e3
    return [
        warps * flops_us / launch.balance / min(1.0, launch.active_warps / COMPUTING_WARPS),
        sum(work.footprint.values()) / 1e3 / machine.memory_gbytes_per_sec,
        warps * moved / l2 / launch.balance / min(1.0, launch.active_warps / LOADING_WARPS),
        warps * work.traffic["shared"].moved / l1 / launch.balance,
        warps * work.sum_bytes * launch.spilled / (launch.spilled + launch.registers) / l2 / launch.balance,
    ]


def _ideal_us(works: Sequence[KernelWork], machine: Machine) -> float:
    """Return the time of the kernels' arithmetic and bytes at the machine's peaks."""
    rate = machine.gflops["float16" if any(work.is_narrow for work in works) else "float32"]
    flops = sum(work.warps * (32 * work.sums["arithmetic"] + work.tensor_flops) for work in works)
    least_bytes = sum(sum(work.footprint.values()) for work in works)
    return max(flops / rate, least_bytes / machine.memory_gbytes_per_sec, 1.0) / 1e3


def kernel_features(functions: Sequence[Any], arch: str) -> Matrix:
    """Return features of lowered kernels for `arch`. Sizes and work are log2(1 + value);
    times are log2 of their ratio to the machine's limit. Launch sizes, registers and shared
    memory are those of the kernel that takes longest by the model."""
    machine, works = assume_typical_gpu(arch), [_read(function) for function in functions]
    launches = [_launch(work, arch, machine) for work in works]
    times_us = np.array([_times_us(*each, machine) for each in zip(works, launches, strict=True)])
    slowest = int(times_us.max(axis=1).argmax())
    work, launch = works[slowest], launches[slowest]
    sums = [sum(each.sums[name] * each.warps for each in works) for name in _SUMS]
    sizes = [len(works), work.blocks, work.threads, *work.shared_bytes.values()]
    logs = [*sizes, launch.registers, launch.spilled, launch.resident, launch.waves, *sums]
    row = [*np.log2(1 + np.array(logs)), launch.occupancy, launch.balance]
    for kind in _TRAFFIC:
        used, moved, accesses = (
            sum(getattr(each.traffic[kind], part) * each.warps for each in works)
            for part in ("used", "moved", "accesses")
        )
        row += [np.log2(1 + moved), used / moved if moved else 1.0, np.log2(1 + used / max(accesses, 1.0))]
    reads = sorted(work.reads.items(), key=lambda item: -item[1].moved)[:LARGEST]
    for name, traffic in [*reads, *[(0, Traffic())] * (LARGEST - len(reads))]:
        passes = traffic.moved * work.warps / work.footprint.get(name, 1)
        row += [np.log2(1 + passes), traffic.used / traffic.moved if traffic.moved else 1.0]
    totals_us = np.array([*times_us.sum(axis=0), (times_us[:, :-1].max(axis=1) + times_us[:, -1]).sum()])
    return np.array([[*row, *np.log2(1e-3 + totals_us / _ideal_us(works, machine))]], dtype=np.float32)


def _read(function: Any) -> KernelWork:
    reader = _KernelReader()
    reader.visit(function.body, 1.0)
    return reader.work
