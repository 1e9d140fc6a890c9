"""Serves one RPC session on a device: a client's calls, and the deadline of each run."""

import ctypes
import json
import logging
import os
import resource
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import tvm
import tvm_ffi
from tvm.rpc import _ffi_api as rpc_api
from tvm.runtime import Module, Tensor, load_module, num_threads

from mallorn.core.errors import HostFault
from mallorn.core.fleet_key import FleetKey
from mallorn.core.targets import Target
from mallorn.workers.device.cuda_driver import Gpu, load_cuda_runtime
from mallorn.workers.device.device_class import Identity, RuntimeFacts
from mallorn.workers.device.gpu_meter import GpuLoad, GpuMeter
from mallorn.workers.device.measuring_conditions import list_threads
from mallorn.workers.device.model_kernel_times import Kernels, clock_of, enable_cuda_graphs
from mallorn.workers.device.random_and_saved_arrays import random_values
from mallorn.workers.device.rpc_handshake import NO_SESSION
from mallorn.workers.device.session_channel import DeviceLink
from mallorn.workers.device.slice_timer import NEXT_SLICE, SliceTimer
from mallorn.workers.host.core_lock import CoreLock
from mallorn.workers.host.host_memory import free_bytes
from mallorn.workers.host.load_meter import LoadMeter
from mallorn.workers.host.process_priority import raise_priority
from mallorn.workers.sandbox.landlock import READ_FILE
from mallorn.workers.sandbox.sandbox import OFF, SandboxSpec, enter_sandbox
from mallorn.workers.sandbox.sandbox_support import require_sandbox_mode
from mallorn.workers.sandbox.system_paths import accelerator_paths

log = logging.getLogger(__name__)
#: Exit code of a session whose CUDA context is broken.
BROKEN_CONTEXT: Final = 75
_M_PERTURB: Final = -6  # glibc's name for the option
# In all bytes: 3.4e38 as float32, NaN as float16, an index far out of bounds.
_HUGE: Final = 0x7F


@dataclass(eq=False)
class RpcSession:
    """Serves one client: holds the files that the client uploads, and tells the device of
    every candidate before it runs, and why it exits with BROKEN_CONTEXT."""

    identity: Identity
    folder: Path
    key: FleetKey
    sandbox: str
    device: DeviceLink

    def __post_init__(self) -> None:
        self._cores = CoreLock()
        self._target = Target(self.identity["target"])
        self._on_cores = self._target.is_cpu
        self._on_cuda = self._target.kind == "cuda"
        self._gpu: GpuMeter | None = None

    def serve(self, connection_fd: int) -> None:
        """Answer calls until the client leaves, or why the session cannot begin."""
        os.chdir(self.folder)
        poison_fresh_memory()
        try:
            if self._on_cuda:  # before the sandbox, and before there is a context
                load_cuda_runtime()
                self._gpu = GpuMeter(self.identity.get("gpu_uuid", ""))
            is_raised = self._on_cores and raise_priority()  # the sandbox forbids it
            for limit in (resource.RLIMIT_NICE, resource.RLIMIT_RTPRIO):  # no candidate raises it more
                resource.setrlimit(limit, (0, 0))
            if self.sandbox != OFF:
                # A session needs its folder, and its host's locks or GPU.
                paths = list(accelerator_paths(self._target.kind, self.identity.get("gpu_uuid", "")))
                if self._on_cores:
                    paths += [(str(path), READ_FILE) for path in self._cores.files()]
                spec = SandboxSpec(self.folder, drives_gpu=self._on_cuda, others=tuple(paths))
                require_sandbox_mode(enter_sandbox(spec), self.sandbox)
        except HostFault as error:
            log.error("a session ended before it began: %s; %s", error.message, error.hint)
            rpc_api.ReturnException(connection_fd, f"{NO_SESSION} {error.message}; {error.hint}")
            return
        if self._on_cuda:
            self._exit_if_gpu_failed()
        if self._on_cores:
            num_threads()  # starts TVM's threads, which must be inside the sandbox
        timer = SliceTimer(self._on_cores, is_raised, self._gpu)
        functions: dict[str, Callable[..., object]] = {
            "tvm.rpc.server.workpath": lambda name: str(self.folder / name),
            "tvm.rpc.server.load_module": lambda name: load_module(str(self.folder / name)),
            # Only the device that the tracker assigned to the client can compute this MAC.
            "mallorn.prove": lambda words: self.key.sign("device", words),
            "mallorn.identity": lambda: json.dumps(self.identity),
            "mallorn.hold": self.lock_cores,
            "mallorn.begin": self.device.begin_candidate,
            "mallorn.end": self.cancel_deadline,
            "mallorn.random_fill": random_fill,
            "mallorn.kernel_times": kernel_times,
            "mallorn.time_slices": lambda *call: json.dumps(asdict(timer.time_slices(*call))),
            "mallorn.time_cold_slices": lambda *call: json.dumps(asdict(timer.time_cold_slices(*call))),
            "mallorn.use_graphs": enable_cuda_graphs,
            NEXT_SLICE: timer.count_slice,
            "mallorn.load": self.read_load_json,
            "mallorn.free_memory": self.free_memory,
        }
        for name, function in functions.items():
            tvm_ffi.register_global_func(name, function, override=True)
        rpc_api.ServerLoop(connection_fd)

    def _exit_if_gpu_failed(self) -> None:
        """Wait for the GPU; end this process if its CUDA context is broken, as after an
        error in a kernel, since only a new process gets a new context. The first call
        creates the context."""
        try:
            tvm.device(self._target.kind, 0).sync()
        except Exception as error:
            self.device.end_candidate(str(error))
            os._exit(BROKEN_CONTEXT)

    def lock_cores(self, wait_sec: float) -> int:
        """Lock this host's cores until the next candidate has run. Return 1, or 0 if other
        processes still hold them after `wait_sec`."""
        return int(not self._on_cores or self._cores.lock_exclusively(wait_sec))

    @cached_property
    def _load_meter(self) -> LoadMeter:
        return LoadMeter(lambda: ())

    def read_load_json(self) -> str:
        """Return as JSON the load by other programs since the last call, and what slows
        down the GPU now."""
        load = asdict(self._load_meter.read_load())
        gpu = self._gpu.read_load() if self._gpu is not None else GpuLoad(None)
        return json.dumps(load | ({"gpu_share": gpu.share, "gpu_words": gpu.words} if gpu.words else {}))

    def free_memory(self) -> int:
        """Return the bytes that models may allocate now; -1 if TVM does not know."""
        if self._on_cores:
            return free_bytes()
        device = tvm.device(self._target.kind, 0)
        memory = device.available_global_memory
        return -1 if memory is None else int(memory)

    def cancel_deadline(self) -> None:
        """Cancel the deadline of a candidate that ended, and unlock the cores."""
        if self._on_cuda:
            self._exit_if_gpu_failed()
        self.device.end_candidate()
        self._cores.unlock()


def poison_fresh_memory() -> None:
    """Fill memory with an unusual byte when it is allocated, if this process's C library
    can. Fresh memory is mostly zero: a program that reads memory that it never wrote would
    pass here and fail in a model. TVM's ``reverse_compute_at`` of a padding makes them."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_PERTURB, _HUGE ^ 0xFF)  # allocated memory gets the complement


def random_fill(tensor: Tensor, low: float, high: float, seed: int) -> None:
    """Fill a tensor with random values in [low, high). The range keeps indices valid and
    floats from being denormal."""
    tensor.copyfrom(random_values(tuple(tensor.shape), str(tensor.dtype), low, high, seed))


def kernel_times(machine: Module, kind: str, seconds: float) -> str:
    """Return as JSON the microseconds per run that each kernel of a Relax virtual machine
    takes. Its inputs must be set."""
    invoke = machine["invoke_stateful"]
    clock = clock_of(kind, tvm.device(kind, 0).sync)
    kernels = Kernels(machine["set_instrument"], lambda: invoke("main"), clock)
    return json.dumps(dict(kernels.measure_times_us(seconds)))


def bound_thread_cpus() -> list[list[int]]:
    """Start TVM's thread pool; return the CPUs to which TVM bound each thread, by their age."""
    num_threads()
    return [sorted(os.sched_getaffinity(thread)) for thread in list_threads("self")]


def runtime_facts(target: Target, gpu: Gpu | None = None) -> RuntimeFacts:
    """Describe TVM's runtime in this process. Also starts its thread pool and, on a GPU, a
    CUDA context. Raises HostFault if the GPU cannot be used."""
    facts: RuntimeFacts = {"tvm_version": str(tvm.__version__), "threads": int(num_threads())}
    if gpu is not None:
        facts["gpu_power_limit"] = GpuMeter(gpu.uuid).power_limit()
        facts["gpu_index"], facts["gpu_uuid"] = gpu.index, gpu.uuid
        facts["gpu_memory_bytes"], facts["gpu_driver"] = gpu.memory_bytes, gpu.driver
        load_cuda_runtime()
    if not target.is_cpu:
        device = tvm.device(target.kind, 0)
        facts["accelerator"] = str(device.device_name) if device.exist else ""
    return facts
