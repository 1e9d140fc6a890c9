"""Runs a device, the measuring endpoint for one target: prepares its process and describes it."""

import signal
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path

from mallorn.core.errors import InvalidTarget
from mallorn.core.fleet_key import FleetKey
from mallorn.core.targets import Target
from mallorn.workers.device.detect_host import Identity, read_host_facts, refresh_host_facts
from mallorn.workers.device.device_kind import Accelerator
from mallorn.workers.device.forked_process import ask_in_fork
from mallorn.workers.device.prepare_session import runtime_facts, set_runtime_environment
from mallorn.workers.device.private_sockets import listen
from mallorn.workers.device.serve_tracker import OnReady, log_ready
from mallorn.workers.device.tracker_client import NO_KEY, Address, tracker_key
from mallorn.workers.host.host_lock import CoreLock
from mallorn.workers.sandbox.sandbox import BEST_EFFORT
from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support

PORTS = range(9091, 9200)


def serve_device(
    tracker: Address,
    target: Target,
    host: str = "127.0.0.1",
    ports: range = PORTS,
    *,
    name: str,
    accelerator: Accelerator | None = None,
    is_local: bool = False,
    log_path: Path | None = None,
    on_ready: OnReady = log_ready,
    sandbox: str = BEST_EFFORT,
    key: FleetKey = NO_KEY,
) -> None:
    """Run a device that times candidates for `target`, until the process ends.

    The process needs only TVM's runtime library. `accelerator` is the one that the
    target runs on; this process sees no other. `is_local` says that the target was detected
    on this host. Before each execution, `log_path` gets a line with the time, the candidate
    key and the pid of the session. `sandbox` is the mode of the sandbox around sessions, as
    in Settings. Raises NoSandbox if the mode requires more than this host supports,
    InvalidRequest if the address may not be bound, InvalidTarget if this host cannot run
    the target, HostFault if it cannot open the lock files.
    """
    set_runtime_environment(target)
    CoreLock().files()
    make_listener = partial(listen, host, ports, key)
    listener = make_listener()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Imported late: it loads TVM, which reads its environment variables when it is loaded.
    from mallorn.workers.device.device_server import DeviceServer, Registration
    from mallorn.workers.device.serve_rpc_session import bound_thread_cpus

    with tempfile.TemporaryDirectory(prefix="mallorn-device-") as folder:
        identity = describe(name, target, listener, is_local, probe_sandbox_support(sandbox), accelerator)
        listening: Address = listener.getsockname()[:2]
        registration = Registration(tracker, tracker_key(target), listening, identity, key)
        on_ready(*listening)
        log_file = log_path.absolute() if log_path else None
        cpus = ask_in_fork(bound_thread_cpus) if target.runs_on_cores else []
        DeviceServer(
            registration, listener, Path(folder), log_file, sandbox, make_listener, cpus
        ).serve_forever()


def describe(
    name: str,
    target: Target,
    listener: socket.socket,
    is_local: bool,
    sandbox: str,
    accelerator: Accelerator | None = None,
) -> Identity:
    """Return this device's description of itself. Raises InvalidTarget if the host has no
    GPU of the target's kind, HostFault if the GPU cannot be used."""
    # In a fork: sessions forked from a process with threads or an accelerator fail.
    facts = ask_in_fork(lambda: runtime_facts(target, accelerator))
    if not target.runs_on_cores and not facts.get("accelerator"):
        raise InvalidTarget(f"this host has no {target.kind} device", hint="mallorn device --target local")
    host, port = listener.getsockname()[:2]
    identity: Identity = {
        "name": name,
        "target": target.text,
        "address": f"{host}:{port}",
        "is_local": is_local,
        "sandbox": sandbox,
        "lock_file": "",
        "disturbed": None,
        **read_host_facts(),
        **facts,
    }
    return refresh_host_facts(identity)
