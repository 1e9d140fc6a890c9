"""Serves one RPC session on a device: a client's calls, and the deadline of each run."""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import tvm
import tvm_ffi
from tvm.rpc import _ffi_api as rpc_api
from tvm.runtime import Module, load_module, num_threads

from mallorn.core.errors import HostFault
from mallorn.core.fleet_key import FleetKey
from mallorn.core.targets import Target
from mallorn.workers.device.detect_host import Identity
from mallorn.workers.device.device_kind import AcceleratorMeter, DeviceKind, device_kind, tvm_device_type
from mallorn.workers.device.measuring_conditions import list_threads
from mallorn.workers.device.model_kernel_times import Kernels, clock_of
from mallorn.workers.device.prepare_session import prepare_session
from mallorn.workers.device.random_and_saved_arrays import random_fill
from mallorn.workers.device.rpc_handshake import NO_SESSION
from mallorn.workers.device.session_channel import DeviceLink
from mallorn.workers.device.slice_timer import NEXT_SLICE, SliceTimer
from mallorn.workers.host.host_lock import CoreLock
from mallorn.workers.host.host_memory import free_bytes
from mallorn.workers.host.load_meter import LoadMeter
from mallorn.workers.sandbox.landlock import READ_FILE

log = logging.getLogger(__name__)
#: Exit code of a session whose accelerator does not go on after an error.
BROKEN_SESSION: Final = 75


@dataclass(eq=False)
class RpcSession:
    """Serves one client: holds the files that the client uploads, and tells the device of
    every candidate before it runs, and why it exits with BROKEN_SESSION."""

    identity: Identity
    folder: Path
    key: FleetKey
    sandbox: str
    device: DeviceLink

    def __post_init__(self) -> None:
        self._cores = CoreLock()
        self._target = Target(self.identity["target"])
        self._on_cores = self._target.runs_on_cores
        self._kind = device_kind(self._target)
        self._meter: AcceleratorMeter | None = None

    def serve(self, connection_fd: int) -> None:
        """Answer calls until the client leaves, or why the session cannot begin."""
        os.chdir(self.folder)
        try:
            paths = [(str(path), READ_FILE) for path in self._cores.files()] if self._on_cores else []
            uuid = self.identity.get("gpu_uuid", "")
            is_raised, self._meter, _ = prepare_session(self._target, uuid, self.folder, paths, self.sandbox)
        except HostFault as error:
            log.error("a session ended before it began: %s; %s", error.message, error.hint)
            rpc_api.ReturnException(connection_fd, f"{NO_SESSION} {error.message}; {error.hint}")
            return
        self._exit_if_broken()
        if self._on_cores:
            num_threads()  # starts TVM's threads, which must be inside the sandbox
        timer = SliceTimer(self._on_cores, is_raised, self._meter, self._kind)
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
            "mallorn.kernel_times": partial(kernel_times, self._kind),
            "mallorn.time_slices": lambda *call: json.dumps(asdict(timer.time_slices(*call))),
            "mallorn.time_cold_slices": lambda *call: json.dumps(asdict(timer.time_cold_slices(*call))),
            "mallorn.use_graphs": self._kind.enable_graphs,
            NEXT_SLICE: timer.count_slice,
            "mallorn.load": self.read_load_json,
            "mallorn.free_memory": self.free_memory,
        }
        for name, function in functions.items():
            tvm_ffi.register_global_func(name, function, override=True)
        rpc_api.ServerLoop(connection_fd)

    def _exit_if_broken(self) -> None:
        """Wait for the accelerator; end this process if that fails, as after an error in a
        kernel: only a new process can use it again. The first call begins its use."""
        if not self._kind.breaks_sessions:
            return
        try:
            tvm.device(tvm_device_type(self._target), 0).sync()
        except Exception as error:
            self.device.end_candidate(str(error))
            os._exit(BROKEN_SESSION)

    def lock_cores(self, wait_sec: float) -> int:
        """Lock this host's cores until the next candidate has run. Return 1, or 0 if other
        processes still hold them after `wait_sec`."""
        return int(not self._on_cores or self._cores.lock_exclusively(wait_sec))

    @cached_property
    def _load_meter(self) -> LoadMeter:
        return LoadMeter(lambda: ())

    def read_load_json(self) -> str:
        """Return as JSON other programs' load since the last call, and the accelerator's losses."""
        load = asdict(self._load_meter.read_load())
        if self._meter is not None and (lost := self._meter.read_load()).words:
            load |= {"gpu_share": lost.share, "gpu_words": lost.words}
        return json.dumps(load)

    def free_memory(self) -> int:
        """Return the bytes that models may allocate now; -1 if TVM does not know."""
        if self._on_cores:
            return free_bytes()
        memory = tvm.device(self._target.kind, 0).available_global_memory
        return -1 if memory is None else int(memory)

    def cancel_deadline(self) -> None:
        """Cancel the deadline of a candidate that ended, and unlock the cores."""
        self._exit_if_broken()
        self.device.end_candidate()
        self._cores.unlock()


def kernel_times(hardware: DeviceKind, machine: Module, kind: str, seconds: float) -> str:
    """Return as JSON the microseconds per run that each kernel of a Relax virtual machine
    takes. Its inputs must be set."""
    invoke = machine["invoke_stateful"]
    clock = clock_of(hardware, tvm.device(kind, 0).sync)
    kernels = Kernels(machine["set_instrument"], lambda: invoke("main"), clock)
    return json.dumps(dict(kernels.measure_times_us(seconds)))


def bound_thread_cpus() -> list[list[int]]:
    """Start TVM's thread pool; return the CPUs to which TVM bound each thread, by their age."""
    num_threads()
    return [sorted(os.sched_getaffinity(thread)) for thread in list_threads("self")]
