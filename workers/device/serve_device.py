"""A measuring endpoint for one target: what it needs from this host, and what it says of itself."""

import os
import signal
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path

from mallorn.core.errors import InvalidTarget, MallornError
from mallorn.core.fleet_key import FleetKey
from mallorn.core.targets import Target
from workers.device.cuda_driver import Gpu
from workers.device.detect_host import available_cores, described_again, host_fingerprint
from workers.device.device_class import Identity
from workers.device.forked_process import ask_in_fork
from workers.device.listen import listen
from workers.device.serve_tracker import OnReady, log_ready
from workers.device.tracker_client import NO_KEY, Address, device_key
from workers.device.tracker_registration import Registration
from workers.host.core_lock import CoreLock
from workers.sandbox.sandbox import BEST_EFFORT
from workers.sandbox.sandbox_support import reached
from workers.subprocesses.hide_torch import hide_torch

PORTS = range(9091, 9200)


def serve_device(
    tracker: Address,
    target: Target,
    host: str = "127.0.0.1",
    ports: range = PORTS,
    *,
    name: str,
    gpu: Gpu | None = None,
    is_local: bool = False,
    log_path: Path | None = None,
    on_ready: OnReady = log_ready,
    sandbox: str = BEST_EFFORT,
    key: FleetKey = NO_KEY,
) -> None:
    """Measure for `target` until the process ends; needs TVM's runtime library alone.

    `gpu` is the one that a CUDA target runs on: CUDA_VISIBLE_DEVICES shows no other to this process.
    `is_local` says that the target is what this host was found to be. `log_path` gets one line an execution,
    before it begins: time, candidate key, pid of the session.
    `sandbox` is a mode of the walls around sessions, as in Settings.
    Raises NoSandbox where they are required and this host has not all of them, InvalidRequest for a public
    address, InvalidTarget when this host has not what the target asks for, HostFault for locks that are
    closed to us.
    """
    prepare_runtime(target)
    CoreLock().files()
    listening_there = partial(listen, host, ports, key)
    listener = listening_there()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Imported late: it loads TVM, which reads its settings only then.
    from workers.device.device_server import DeviceServer

    with tempfile.TemporaryDirectory(prefix="mallorn-device-") as folder:
        identity = describe(name, target, listener, is_local, reached(sandbox), gpu)
        listening: Address = listener.getsockname()[:2]
        registration = Registration(tracker, device_key(target), listening, identity, key)
        on_ready(*listening)
        DeviceServer(
            registration, listener, identity, Path(folder), log_path, sandbox, listening_there
        ).serve_forever()


def prepare_runtime(target: Target) -> None:
    """Set what TVM reads when it is imported: its threads, and to load only its runtime library."""
    cores = available_cores()
    if target.is_cpu and target.num_cores > cores:
        raise InvalidTarget(
            f"the target has {target.num_cores} cores, this process may use {cores}",
            hint="mallorn device --target local",
        )
    if "tvm" in sys.modules:
        raise MallornError(
            "TVM was imported before its threads were set", hint="run `mallorn device` by itself"
        )
    threads = target.num_cores if target.is_cpu else cores
    os.environ["TVM_NUM_THREADS"] = str(threads)
    if threads < (os.cpu_count() or 1):
        # TVM binds them to the first processors of the machine, also where this process may not use those,
        # and where others were given as few.
        os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    hide_torch()
    # This process forks for every session, so it must stay single-threaded.
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"


def describe(
    name: str, target: Target, listener: socket.socket, is_local: bool, sandbox: str, gpu: Gpu | None = None
) -> Identity:
    """What clients and the tracker are told of this device."""
    from workers.device.serve_rpc_session import runtime_facts

    # In a fork: asking starts threads, and a context on a GPU, which no session forked later would survive.
    facts = ask_in_fork(lambda: runtime_facts(target, gpu))
    if not target.is_cpu and not facts.get("accelerator"):
        raise InvalidTarget(f"this host has no {target.kind} device", hint="mallorn device --target local")
    host, port = listener.getsockname()[:2]
    identity: Identity = {
        "name": name,
        "target": target.text,
        "address": f"{host}:{port}",
        "is_local": is_local,
        "sandbox": sandbox,
        "locks": "",
        **host_fingerprint(),
        **facts,
    }
    return described_again(identity)
