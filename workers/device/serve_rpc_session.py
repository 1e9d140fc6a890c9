"""The process that serves one RPC session on a device: what a client may call, and the deadline."""

import json
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import tvm
import tvm_ffi
from tvm.rpc import _ffi_api as rpc_api
from tvm.runtime import Module, Tensor, load_module, num_threads

from mallorn.core.fleet_key import FleetKey
from mallorn.core.targets import Target
from workers.device.cuda_graphs import use_graphs
from workers.device.identity_fields import Identity, RuntimeFacts
from workers.device.memory_poison import poison_fresh_memory
from workers.device.model_kernel_times import Kernels, clock_of
from workers.device.random_and_saved_arrays import random_values
from workers.device.rpc_handshake import NO_SESSION
from workers.device.slice_timer import NEXT_SLICE, SliceTimer
from workers.host.core_lock import CoreLock
from workers.host.host_memory import free_bytes
from workers.host.load_meter import LoadMeter
from workers.host.process_priority import raise_priority
from workers.sandbox.landlock import APPEND, READ_FILE
from workers.sandbox.sandbox import OFF, SandboxSpec, enter_sandbox
from workers.sandbox.sandbox_support import NoSandbox, checked
from workers.sandbox.system_paths import accelerator_paths

log = logging.getLogger(__name__)


class RpcSession:
    """Holds what one client uploads, and writes down every candidate before it runs."""

    def __init__(
        self, identity: Identity, folder: Path, log_path: Path | None, key: FleetKey, sandbox: str
    ) -> None:
        self._identity = identity
        self._folder = folder
        self._log_path = log_path
        self._cores = CoreLock()
        self._target = Target(identity["target"])
        self._on_cores = self._target.is_cpu
        self._key = key
        self._sandbox = sandbox

    def serve(self, connection_fd: int) -> None:
        """Answer the client until it closes the connection; tell it why where the walls do not close."""
        os.chdir(self._folder)
        poison_fresh_memory()
        timer = SliceTimer(self._on_cores, self._on_cores and raise_priority())
        if self._sandbox != OFF:
            try:
                checked(enter_sandbox(self._walls()), self._sandbox)
            except NoSandbox as error:
                log.error("a session ended before it began: %s; %s", error.message, error.hint)
                rpc_api.ReturnException(connection_fd, f"{NO_SESSION} {error.message}; {error.hint}")
                return
        for name, function in self._functions(timer).items():
            tvm_ffi.register_global_func(name, function, override=True)
        rpc_api.ServerLoop(connection_fd)

    def _walls(self) -> SandboxSpec:
        """Return what a session needs: its folder, the device's log, and its host's locks or GPU."""
        others = list(accelerator_paths(self._target.kind))
        if self._log_path is not None:
            append_line(self._log_path, "")
            others.append((str(self._log_path), APPEND))
        if self._on_cores:
            others += [(str(path), READ_FILE) for path in self._cores.files()]
        return SandboxSpec(self._folder, drives_gpu=self._target.kind == "cuda", others=tuple(others))

    def _functions(self, timer: SliceTimer) -> dict[str, Callable[..., object]]:
        return {
            "tvm.rpc.server.workpath": self.work_path,
            "tvm.rpc.server.load_module": self.load_module,
            "mallorn.prove": self.prove,
            "mallorn.identity": self.identity,
            "mallorn.hold": self.hold,
            "mallorn.begin": self.begin,
            "mallorn.end": self.end,
            "mallorn.random_fill": random_fill,
            "mallorn.kernel_times": kernel_times,
            "mallorn.time_slices": lambda *call: timer.times(*call).model_dump_json(),
            "mallorn.time_cold_slices": lambda *call: timer.cold_times(*call).model_dump_json(),
            "mallorn.use_graphs": use_graphs,
            NEXT_SLICE: timer.next_slice,
            "mallorn.load": self.load,
            "mallorn.free_memory": self.free_memory,
        }

    def work_path(self, name: str) -> str:
        return str(self._folder / name)

    def load_module(self, name: str) -> Module:
        return load_module(self.work_path(name))

    def prove(self, said: str) -> str:
        """Show a client that this is the device which the fleet's tracker sent it to."""
        return self._key.proof("device", said)

    def identity(self) -> str:
        return json.dumps(self._identity)

    def hold(self, wait_sec: float) -> int:
        """Have the cores of this host alone until the next candidate is over; 0 when they stay in use."""
        return int(not self._on_cores or self._cores.take(wait_sec))

    @cached_property
    def _meter(self) -> LoadMeter:
        return LoadMeter(lambda: ())

    def load(self) -> str:
        """How busy others kept this host since the last look."""
        return json.dumps(asdict(self._meter.look()))

    def free_memory(self) -> int:
        """Bytes that models may take now; -1 where TVM cannot tell."""
        if self._on_cores:
            return free_bytes()
        device = tvm.device(self._target.kind, 0)
        told = device.available_global_memory
        return -1 if told is None else int(told)

    def begin(self, candidate_key: str, deadline_sec: float) -> None:
        """Log one execution, then have the kernel end this process when it is not over in time.

        SIGALRM keeps its default action: a Python handler would never run inside an endless native loop.
        """
        if self._log_path is not None:
            append_line(self._log_path, f"{time.time():.6f}\t{candidate_key}\t{os.getpid()}\n")
        signal.setitimer(signal.ITIMER_REAL, deadline_sec)

    def end(self) -> None:
        """The candidate came back: no deadline any more, and others may time."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._cores.give_back()


def append_line(path: Path, line: str) -> None:
    """Add a whole line at once, so that sessions may share the file."""
    log_fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log_fd, line.encode())
    finally:
        os.close(log_fd)


def random_fill(tensor: Tensor, low: float, high: float, seed: int) -> None:
    """Fill a tensor with values of [low, high): indices stay in range, floats are not denormal."""
    tensor.copyfrom(random_values(tuple(tensor.shape), str(tensor.dtype), low, high, seed))


def kernel_times(machine: Module, kind: str, seconds: float) -> str:
    """Microseconds that a run of a virtual machine, which has its inputs, spends in each of its kernels."""
    invoke = machine["invoke_stateful"]
    clock = clock_of(kind, tvm.device(kind, 0).sync)
    kernels = Kernels(machine["set_instrument"], lambda: invoke("main"), clock)
    return json.dumps(dict(kernels.times(seconds)))


def runtime_facts(target: Target) -> RuntimeFacts:
    """What TVM's runtime really is and does in this process; starts its thread pool."""
    facts: RuntimeFacts = {"tvm_version": str(tvm.__version__), "threads": int(num_threads())}
    if not target.is_cpu:
        device = tvm.device(target.kind, 0)
        facts["accelerator"] = str(device.device_name) if device.exist else ""
    return facts
