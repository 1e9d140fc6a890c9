"""Compute the view `kernels` of a CUDA candidate from its lowered program, without nvcc.

Executed work is counted by loop extents; both branches of a condition count. An access is
looked at once, for the first warp of the first block in the first iteration of all loops.
"""

import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import ceil, prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm_ffi import structural_walk

from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import Target
from mallorn.core.values.machine import Machine, element_bytes
from mallorn.kinds.cuda import compute_capability as cuda
from mallorn.kinds.cuda.compiler.cuda_rules import lower_kernels
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.space import Matrix
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target

Lanes = NDArray[np.int64]
LARGEST: Final = 3  # buffers with columns of their own
BASE_REGISTERS: Final = 24  # addresses and loop counters of a thread
# Fewer active warps of a multiprocessor hide less latency of arithmetic, and of loads.
COMPUTING_WARPS: Final = 8
LOADING_WARPS: Final = 16
_AXES: Final = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
_OPERATORS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.BitwiseAnd: operator.and_,
    tirx.BitwiseOr: operator.or_,
    tirx.BitwiseXor: operator.xor,
    tirx.LShift: operator.lshift,
    tirx.RShift: operator.rshift,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    **dict.fromkeys((tirx.Div, tirx.FloorDiv), lambda a, b: a // np.where(b == 0, 1, b)),
    **dict.fromkeys((tirx.Mod, tirx.FloorMod), lambda a, b: a % np.where(b == 0, 1, b)),
}
_SUMS: Final = ("arithmetic", "tensor_products", "barriers", "async_groups", "shuffles", "statements")
_TRAFFIC: Final = ("loads", "stores", "shared")


class LoweredKernelWork:
    """The work of one warp of a lowered kernel, its launch sizes and its memory."""

    def __init__(self, body: Any) -> None:
        self.extents: dict[str, int] = {}  # of thread and block axes
        self.sums = dict.fromkeys(_SUMS, 0.0)
        # Requested bytes, bytes that memory moves, and accesses of lanes, by kind or buffer read.
        self.traffic: dict[str | int, NDArray[np.float64]] = defaultdict(lambda: np.zeros(3))
        self.footprint: dict[int, int] = {}  # bytes by buffer in global memory
        self.tensor_flops = 0.0
        self.sum_bytes = 0.0  # of registers that arithmetic adds to
        self.tensor_type = "float16"
        self.is_narrow = False  # whether some elements have less than 32 bits
        self.local_bytes = 0.0  # of a thread
        self.shared_bytes = {"shared": 0, "shared.dyn": 0}
        self._values: dict[int, Any] = {}  # of variables in each lane, by hash
        self._visit(body, 1.0)
        self.threads = prod(self.extents.get(axis, 1) for axis in _AXES)
        self.blocks = prod(size for axis, size in self.extents.items() if axis not in _AXES)
        self.warps = self.blocks * -(-self.threads // 32)

    def _visit(self, statement: Any, times: float) -> None:
        match statement:
            case tirx.SeqStmt():
                for part in statement.seq:
                    self._visit(part, times)
            case tirx.For():
                self._visit(statement.body, times * int(statement.extent))
            case tirx.IfThenElse():
                self._visit(statement.then_case, times)
                self._visit(statement.else_case, times)
            case tirx.AttrStmt():
                key = statement.attr_key
                self.sums["async_groups"] += times * (key == "async_commit_queue_scope")
                if key == "thread_extent":
                    axis, extent = str(statement.node.thread_tag), int(statement.value)
                    self.extents[axis] = extent
                    inner = _AXES[: _AXES.index(axis)] if axis in _AXES else ()
                    stride = prod(self.extents.get(tag, 1) for tag in inner)
                    lanes = np.arange(32) // stride % extent if axis in _AXES else 0
                    self._values[hash(statement.node.var)] = lanes
                self._visit(statement.body, times)
            case tirx.AllocBuffer():
                size, scope = _buffer_bytes(statement.buffer), str(statement.buffer.scope())
                if scope in self.shared_bytes:
                    self.shared_bytes[scope] += size
                else:
                    self.local_bytes += size / (32 if scope.startswith("wmma") else 1)
            case tirx.Bind():
                self._values[hash(statement.var)] = self._evaluate(statement.value)
                self._visit_expression(statement.value, times)
            case tirx.BufferStore() | tirx.Evaluate():
                self.sums["statements"] += 1
                if isinstance(statement, tirx.BufferStore):
                    self._access(statement.buffer, statement.indices[-1], times, is_store=True)
                self._visit_expression(statement.value, times)

    def _visit_expression(self, expression: Any, times: float) -> None:
        addresses: set[int] = set()  # loads that only name an address

        def visit(node: Any) -> None:
            match node:
                case Call():
                    self.count_call(node, times, addresses)
                case TensorLoad() if hash(node) not in addresses:
                    self._access(node.source, node.indices[-1], times)
                case tirx.Add() | tirx.Sub() | tirx.Mul() if "float" in (dtype := str(node.ty.dtype)):
                    lanes = int(dtype.partition("x")[2] or 1)
                    self.sums["arithmetic"] += times * lanes
                    self.sum_bytes += 32 * 4.0 * times * lanes

        kinds = Call, TensorLoad, tirx.Add, tirx.Sub, tirx.Mul
        structural_walk(expression, (kinds, visit), order="pre")

    def count_call(self, call: Any, times: float, addresses: set[int]) -> None:
        """Count an intrinsic's call, and note a load of which it takes the address."""
        arguments = call.args
        match str(getattr(call.op, "name", "")).rpartition(".")[2]:
            case "address_of":
                addresses.add(hash(arguments[0]))
            case "tvm_storage_sync":
                self.sums["barriers"] += times
            case name if "shfl" in name:
                self.sums["shuffles"] += times
            case "mma" | "tvm_mma_sync" as name:
                m = n = k = 16
                if name == "mma":
                    shape = str(arguments[0].value)  # as in m16n8k16
                    m, n, k = map(int, shape.translate(str.maketrans("mnk", "   ")).split())
                    self.tensor_type = str(arguments[3].value).replace("tf32", "tfloat32")
                self.sums["tensor_products"] += times
                self.tensor_flops += 2.0 * m * n * k * times
                self.sum_bytes += 8.0 * m * n * times
            case "tvm_load_matrix_sync" | "tvm_store_matrix_sync" as name:
                buffer, stride = arguments[5].args[0].source, int(arguments[6])
                row, half = divmod(np.arange(32), 2)
                offsets = row * stride * _item_bytes(buffer) + half * 16
                self._count(buffer, offsets, 16, times, is_store="store" in name)
            case "ldmatrix":
                pointers = (arg for arg in arguments if "address_of" in str(getattr(arg, "op", "")))
                load = next(pointers).args[0]
                lanes = self._evaluate(load.indices[-1]) * _item_bytes(load.source)
                self._count(load.source, lanes[: 8 * int(arguments[1])], 16, times)
            case name if name.startswith("cp_async") and len(arguments) > 5:
                for place in (1, 3):  # into shared memory, from global memory
                    buffer = arguments[place].args[0]
                    lanes = self._evaluate(arguments[place + 1]) * _item_bytes(buffer)
                    self._count(buffer, lanes, int(arguments[-1]), times, is_store=place == 1)

    def _access(self, buffer: Any, index: Any, times: float, is_store: bool = False) -> None:
        item, lanes = _item_bytes(buffer), self._evaluate(index) * _item_bytes(buffer)
        width = stride = 1
        if isinstance(index, tirx.Ramp):
            width, stride = int(index.lanes), int(index.stride)
        if stride == 1:
            self._count(buffer, lanes, width * item, times, is_store)
        else:
            for step in range(width):
                self._count(buffer, lanes + step * stride * item, item, times, is_store)

    def _count(self, buffer: Any, lanes: Any, width: int, times: float, is_store: bool = False) -> None:
        """Count an access of `width` bytes of each lane at these byte offsets."""
        threads = prod(self.extents.get(axis, 1) for axis in _AXES)
        active = np.broadcast_to(lanes, np.shape(lanes) or (32,))[:threads]
        scope, item = str(buffer.scope()), _item_bytes(buffer)
        starts = active[:, None] + np.arange(0, max(width, cuda.BANK_BYTES), cuda.BANK_BYTES)
        if scope == "global":
            moved = cuda.SECTOR * np.unique(np.append(starts, active + width - 1) // cuda.SECTOR).size
            kinds: list[str | int] = ["stores"] if is_store else ["loads", hash(buffer)]
            self.footprint[hash(buffer)] = _buffer_bytes(buffer)
            self.is_narrow |= item < 4
        elif scope.startswith("shared"):
            conflicts = np.bincount(np.unique(starts // cuda.BANK_BYTES) % cuda.BANKS).max()
            moved = cuda.BANKS * cuda.BANK_BYTES * int(conflicts)
            kinds = ["shared"]
        else:
            return
        counts = np.array([width * np.unique(active).size, moved, active.size])
        for kind in kinds:
            self.traffic[kind] += times * counts

    def _evaluate(self, expression: Any) -> Any:
        """Return an integer expression's value in each lane; 0 if it is unknown."""
        match expression:
            case tirx.IntImm():
                return int(expression)
            case tirx.Var():
                return self._values.get(hash(expression), 0)
            case tirx.Cast():
                return self._evaluate(expression.value)
            case tirx.Ramp():
                return self._evaluate(expression.base)
        apply = _OPERATORS.get(type(expression))
        if apply is None:
            return 0
        return apply(self._evaluate(expression.a), self._evaluate(expression.b))


def _item_bytes(buffer: Any) -> int:
    return max(1, int(element_bytes(str(buffer.dtype))))


def _buffer_bytes(buffer: Any) -> int:
    extents = (int(extent) if isinstance(extent, tirx.IntImm) else 1 for extent in buffer.shape)
    return prod(extents) * _item_bytes(buffer)


class Launch(NamedTuple):
    """Shares of a kernel's blocks in the multiprocessors; its registers are an estimate."""

    registers: int
    spilled: int  # registers of a thread beyond those that it can have
    resident: int  # blocks of a multiprocessor
    waves: float
    occupancy: float
    balance: float  # mean work of a multiprocessor over the most that one has
    times_us: list[float]  # of arithmetic, memory, second cache, shared memory, and spills

    @classmethod
    def of(cls, work: LoweredKernelWork, arch: str, machine: Machine) -> "Launch":
        gpu, cores = cuda.capability(arch), machine.cores
        needed_registers = BASE_REGISTERS + ceil(work.local_bytes / 4)
        register_limit = min(cuda.REGISTERS_PER_THREAD, cuda.REGISTERS_PER_BLOCK // max(32, work.threads))
        registers, shared_bytes = min(needed_registers, register_limit), sum(work.shared_bytes.values())
        resident = max(1, gpu.resident_blocks(work.threads, registers, shared_bytes))
        warps, largest_share = -(-work.threads // cuda.WARP_SIZE), -(-work.blocks // cores)
        balance = work.blocks / (cores * largest_share)
        active_warps = min(resident, largest_share) * warps
        tensor_rate = machine.gflops.get(work.tensor_type, machine.gflops["float16"])
        flops_us = 32 * work.sums["arithmetic"] / machine.gflops["float32"]
        flops_us += work.tensor_flops / tensor_rate
        first, second = (cache.gbytes_per_sec * cores for cache in machine.caches[:2])
        moved = work.traffic["loads"][1] + work.traffic["stores"][1]
        all_us = work.warps / 1e3 / balance
        times_us = [
            all_us * flops_us / min(1.0, active_warps / COMPUTING_WARPS),
            sum(work.footprint.values()) / 1e3 / machine.memory_gbytes_per_sec,
            all_us * moved / second / min(1.0, active_warps / LOADING_WARPS),
            all_us * work.traffic["shared"][1] / first,
            all_us * work.sum_bytes * (1 - registers / needed_registers) / second,
        ]
        occupancy = min(1.0, resident * warps * cuda.WARP_SIZE / gpu.threads_per_sm)
        waves = work.blocks / (cores * resident)
        return cls(registers, needed_registers - registers, resident, waves, occupancy, balance, times_us)


def kernel_features(functions: Sequence[Any], arch: str) -> Matrix:
    """Return features of lowered kernels for `arch`. Sizes and work are log2(1 + value);
    times are log2 of their ratio to the machine's limit. Launch sizes, registers and shared
    memory are those of the kernel that takes longest by the model."""
    machine = assume_typical_gpu(arch)
    works = [LoweredKernelWork(function.body) for function in functions]
    launches = [Launch.of(work, arch, machine) for work in works]
    times_us = np.array([launch.times_us for launch in launches])
    slowest = int(times_us.max(axis=1).argmax())
    work, launch = works[slowest], launches[slowest]
    sums = [sum(kernel.sums[name] * kernel.warps for kernel in works) for name in _SUMS]
    shared_bytes = work.shared_bytes.values()
    logs = [len(works), work.blocks, work.threads, *shared_bytes, *launch[:4], *sums]
    row = [*np.log2(1 + np.array(logs)), launch.occupancy, launch.balance]
    for kind in _TRAFFIC:
        requested, moved, accesses = sum(kernel.traffic[kind] * kernel.warps for kernel in works)  # type: ignore[misc]
        efficiency = requested / moved if moved else 1.0
        row += [np.log2(1 + moved), efficiency, np.log2(1 + requested / max(accesses, 1.0))]
    reads = sorted((-work.traffic[name][1], work.traffic[name][0], name) for name in work.footprint)
    for moved, requested, name in [*reads, *[(0.0, 0.0, 0)] * LARGEST][:LARGEST]:
        passes = -moved * work.warps / work.footprint.get(name, 1)
        row += [np.log2(1 + passes), -requested / moved if moved else 1.0]
    is_narrow = any(kernel.is_narrow for kernel in works)
    rate = machine.gflops["float16" if is_narrow else "float32"]
    flops = sum(k.warps * (32 * k.sums["arithmetic"] + k.tensor_flops) for k in works)
    least_bytes = sum(sum(kernel.footprint.values()) for kernel in works)
    ideal_us = max(flops / rate, least_bytes / machine.memory_gbytes_per_sec, 1.0) / 1e3
    modelled_us = times_us[:, :-1].max(axis=1) + times_us[:, -1]
    totals_us = np.array([*times_us.sum(axis=0), modelled_us.sum()])
    return np.array([[*row, *np.log2(1e-3 + totals_us / ideal_us)]], dtype=np.float32)


def describe_kernels(_tir: str, target: str, schedule: Any) -> Matrix:
    """Return the features `kernels` of a schedule. Raises InvalidRequest if the target is
    not CUDA or TVM does not lower the schedule."""
    if (kind := Target(target).kind) != "cuda":
        message = f"the view kernels describes CUDA kernels, and the target is {kind}"
        raise InvalidRequest(message, hint="choose a cost model that reads another view")
    tvm_target = parse_tvm_target(target)
    if (functions := lower_kernels(schedule.mod, tvm_target)) is None:
        raise InvalidRequest("TVM does not lower the schedule")
    return kernel_features(functions, str(tvm_target.attrs["arch"]))
