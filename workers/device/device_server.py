"""The main loop of a device: offer the device to the tracker, serve a session, offer it again."""

import logging
import os
import secrets
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tvm.rpc import _ffi_api as rpc_api

from mallorn.core.errors import HostFault, InvalidRequest, Unavailable
from mallorn.core.fleet_key import FleetKey
from mallorn.core.host_id import SEPARATE_LOCKS, SHARE_LOCKS, host_id, share_locks
from mallorn.core.locked_folders import find_excess, remove_tree
from mallorn.core.targets import Target
from mallorn.workers.device.detect_host import Identity, refresh_host_facts
from mallorn.workers.device.device_kind import device_kind
from mallorn.workers.device.forked_process import ask_in_fork, describe_exit, fork, is_waiting_on_descriptor
from mallorn.workers.device.measuring_conditions import MeasuringConditions, adopt_orphans, kill_children
from mallorn.workers.device.pending_connections import PendingConnections
from mallorn.workers.device.private_sockets import is_own_address
from mallorn.workers.device.rpc_handshake import DEATH_NOTICE, UNHEARD, answer_greeting, host_and_locks
from mallorn.workers.device.serve_rpc_session import RpcSession
from mallorn.workers.device.session_channel import SessionMonitor
from mallorn.workers.device.tracker_client import NO_KEY, Address, TrackerClient

log = logging.getLogger(__name__)

# A client that received our match key and has not connected after this time never will.
UNCLAIMED_SEC = 2.0
PING_SEC = 1.0
UNREAD_SEC: Final = 120.0  # in this time all workers have read a device's description


@dataclass(eq=False)
class Registration:
    """Keeps a device registered with the tracker. If the tracker is gone, methods do not
    raise; `renew_registration` tries again to connect."""

    address: Address  # of the tracker
    key: str
    listening: Address
    identity: Identity
    fleet: FleetKey = NO_KEY

    def __post_init__(self) -> None:
        self.match_key = ""  # a client must present it; it opens one session
        self._tracker: TrackerClient | None = None
        self._busy = False
        self._offered_sec = 0.0
        self._has_complained = False

    def fileno(self) -> int | None:
        """Return the connection's descriptor, readable once the tracker closes it, if any."""
        return self._tracker.fileno() if self._tracker is not None else None

    def renew_registration(self) -> None:
        """Reconnect if necessary; offer again if the match key's client never connected."""

        def register_or_renew() -> None:
            if self._tracker is None:
                self._tracker = TrackerClient(self.address, key=self.fleet)
                log.info("registered with the tracker at %s:%d as %s", *self.address, self.key)
                self._offer_device()
            elif not self._busy and self.match_key in self._tracker.list_pending_match_keys():
                self._offered_sec = time.monotonic()
            elif not self._busy and time.monotonic() - self._offered_sec > UNCLAIMED_SEC:
                log.info("a client got this device's match key from the tracker and never connected")
                self._offer_device()

        self._log_or_disconnect(register_or_renew)

    def set_busy(self, busy: bool) -> None:
        """Report to the tracker that a session began, or that the device is free again."""
        self._busy, self.match_key = busy, ""
        self._log_or_disconnect(self._offer_device)

    def update_description(self, identity: Identity) -> None:
        """Send the tracker this device's new description after its host changed."""
        self.identity = identity
        self._log_or_disconnect(self._send_description)

    def update_address(self, listening: Address, identity: Identity) -> None:
        """Set the device's new address and description; the next `renew_registration` sends them."""
        self.listening, self.identity = listening, identity
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connection to the tracker; the next `renew_registration` opens a new one."""
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None

    def _log_or_disconnect(self, step: Callable[[], None]) -> None:
        try:
            step()
            self._has_complained = False
        except Unavailable as error:
            if not self._has_complained:
                log.warning("%s; trying again every second", error.message)
            self._has_complained = True
            self.disconnect()

    def _send_description(self) -> None:
        if self._tracker is not None:
            state = {"busy": self._busy, "mallorn": self.identity}
            self._tracker.send_description({"key": f"server:{self.key}", "addr": [*self.listening], **state})

    def _offer_device(self) -> None:
        self._send_description()
        if self._tracker is not None and not self._busy:
            host, port = self.listening
            self.match_key = f"{self.key}:{secrets.token_hex(8)}"
            self._tracker.offer_device(self.key, host, port, self.match_key)
            self._offered_sec = time.monotonic()


@dataclass
class Running:
    """The process of the session in progress, and its connection to the client."""

    pid: int
    pid_fd: int
    connection: socket.socket
    folder: Path
    monitor: SessionMonitor
    is_abandoned: bool = False  # its client hung up

    def kill(self, cause: str) -> None:
        self.monitor.fault = self.monitor.fault or cause
        os.kill(self.pid, signal.SIGKILL)


@dataclass(eq=False)
class DeviceServer:
    """Serves one session at a time. A session that crashes ends only its own process."""

    registration: Registration
    listener: socket.socket
    folder: Path
    log_path: Path | None  # absolute
    sandbox: str
    listen: Callable[[], socket.socket]
    thread_cpus: Sequence[Collection[int]] = ()  # of TVM's threads, by their age

    def __post_init__(self) -> None:
        self._pending = PendingConnections(self.listener)
        self._running: Running | None = None
        self._has_warned_of_locks = False
        self._conditions, self._checked_sec = MeasuringConditions.read(), time.time()
        self._kind = device_kind(Target(self.registration.identity["target"]))
        self._memory_errors = self._count_memory_errors()
        self._known_children = adopt_orphans()
        signal.signal(signal.SIGALRM, lambda *_: self._kill_overdue_session())

    def serve_forever(self) -> None:
        """Handle clients, ended sessions and a lost tracker until the process ends. Raises
        HostFault once the GPU has failed."""
        while True:
            if self._running is None:
                self.announce_host_changes()
            elif excess := find_excess(self._running.folder):
                self._running.kill(f"the session wrote {excess}")
            if self._listen_again_if_moved():
                self.registration.renew_registration()

            waiting = set(self._pending)
            poller = select.poll()
            numbers = [self.listener.fileno(), *waiting]
            if self._running is not None:
                numbers = [self._running.pid_fd, *self._running.monitor.descriptors()]
                if not self._running.is_abandoned:
                    poller.register(self._running.connection, select.POLLRDHUP)
            if (tracker_fd := self.registration.fileno()) is not None:
                numbers.append(tracker_fd)
            for number in numbers:
                poller.register(number, select.POLLIN)

            for ready_fd, _ in poller.poll(PING_SEC * 1000):
                if ready_fd == self.registration.fileno():
                    self.registration.disconnect()
                elif (running := self._running) is not None:
                    if ready_fd == running.pid_fd:
                        self._end_session(running)
                    elif ready_fd == running.connection.fileno():  # a candidate may still run
                        running.is_abandoned = True
                        running.kill("its client hung up")
                    else:
                        running.monitor.read_once(ready_fd)
                        if running.monitor.fault:
                            running.kill(running.monitor.fault)
                elif ready_fd == self.listener.fileno():
                    self._pending.accept()
                elif ready_fd in waiting:
                    greeting = self._pending.read_greeting(ready_fd)
                    if greeting is not None and self._start_session(*greeting):
                        break  # the other numbers may mean other files now

    def _kill_overdue_session(self) -> None:
        """Kill the session at its deadline: a signal's handler, so it never waits."""
        if (running := self._running) is not None:
            # If it waits for its client, it is in no endless loop: the network stalled.
            is_unheard = is_waiting_on_descriptor(running.pid, running.connection.fileno())
            running.kill(f"{signal.SIGALRM.name}: its deadline passed{UNHEARD if is_unheard else ''}")

    def _count_memory_errors(self) -> int:
        if not (uuid := self.registration.identity.get("gpu_uuid")):
            return 0

        def count_errors() -> int:
            meter = self._kind.meter(uuid)
            return 0 if meter is None else meter.count_uncorrected_errors()

        return ask_in_fork(count_errors)

    def _check_conditions(self) -> None:
        """Undo what programs changed of what this device measures under, and describe since
        when times may be wrong. Raises HostFault if it cannot be undone."""
        identity = self.registration.identity
        changes = kill_children(self._known_children) + self._conditions.restore()
        host_class = refresh_host_facts(identity)["host_class"]
        if host_class != identity["host_class"]:
            known_class = identity["host_class"]
            changes.append(f"changed its host's class from {known_class} to {host_class}")
        since_sec, self._checked_sec = self._checked_sec, time.time()
        if changes:
            words = "; ".join(changes)
            log.warning("the times since the last check are upper bounds: a program %s", words)
            last = identity["disturbed"]
            if last is not None and self._checked_sec - last["until"] < UNREAD_SEC:
                since_sec = last["since"]  # workers may not have read it yet
            interval = {"since": since_sec, "until": self._checked_sec}
            self.registration.identity = {**identity, "disturbed": interval}

    def announce_host_changes(self) -> None:
        if (identity := refresh_host_facts(self.registration.identity)) != self.registration.identity:
            log.info("this host is %s now, with governor %s", identity["host_class"], identity["governor"])
            self.registration.update_description(identity)

    def _listen_again_if_moved(self) -> bool:
        """Listen again if this host's address has changed; return False if that fails."""
        if self._running is not None or is_own_address(self.listener.getsockname()[0]):
            return True
        try:
            listener = self.listen()
        except InvalidRequest as error:
            if self.registration.fileno() is not None:
                log.warning("no client can reach this device until its address is back: %s", error.message)
            self.registration.disconnect()
            return False
        self._pending.clear()
        self.listener.close()
        self.listener, self._pending = listener, PendingConnections(listener)
        host, port = listener.getsockname()[:2]
        identity: Identity = {**self.registration.identity, "address": f"{host}:{port}"}
        self.registration.update_address((host, port), identity)
        return True

    def _start_session(self, connection: socket.socket, greeting: str) -> bool:
        """Start a session in a fork if the greeting is valid; return whether it is."""
        registration = self.registration
        if not answer_greeting(
            connection, greeting, registration.key, registration.match_key, registration.fleet
        ):
            connection.close()
            return False
        self._pending.clear()
        # Warn once if the client's locks differ: its builders run on while this device times.
        client_host, client_locks = host_and_locks(greeting)
        self._check_conditions()
        identity = registration.identity
        is_separate = not share_locks(client_host, client_locks, host_id(), identity["lock_file"])
        if is_separate and not identity.get("accelerator") and not self._has_warned_of_locks:
            self._has_warned_of_locks = True
            log.warning("%s; %s", SEPARATE_LOCKS, SHARE_LOCKS)

        folder = Path(tempfile.mkdtemp(dir=self.folder))
        # A session runs untrusted code: it gets a key that is valid for this session only.
        key = next(iter(registration.fleet.derive_session_keys(registration.match_key)), NO_KEY)
        monitor = SessionMonitor(self.log_path, self.thread_cpus)
        # Before the session answers its client: from then on the tracker must not list us as free.
        registration.set_busy(True)

        def run_session() -> None:
            self.listener.close()
            registration.disconnect()
            session = RpcSession(identity, folder, key, self.sandbox, monitor.enter_session())
            session.serve(connection.fileno())

        monitor.pid = fork(run_session)
        pid_fd = os.pidfd_open(monitor.pid)
        self._running = Running(monitor.pid, pid_fd, connection, folder, monitor)
        return True

    def _end_session(self, running: Running) -> None:
        self._running = None
        status, monitor = os.waitpid(running.pid, 0)[1], running.monitor
        monitor.close()
        cause = monitor.fault or monitor.cause or describe_exit(status)
        fault = ""
        if status != 0 and not running.is_abandoned:
            log.warning("a session failed: %s", cause)
            fault = self._kind.fault()
            known_errors, self._memory_errors = self._memory_errors, self._count_memory_errors()
            # An error that names the GPU's memory proves nothing: a candidate can say it, too.
            is_host_fault = fault or monitor.is_host_fault or self._memory_errors > known_errors
            try:  # answer the call during which the session died, so that the client learns the cause
                text = cause if is_host_fault else f"{DEATH_NOTICE} {cause}"
                rpc_api.ReturnException(running.connection.fileno(), text)
            except (OSError, RuntimeError) as error:
                log.info("the client is gone too: %s", error)
        os.close(running.pid_fd)
        running.connection.close()
        remove_tree(running.folder)
        if fault:
            self.registration.disconnect()
            raise HostFault(f"this device unregisters: {fault}", hint=self._kind.fault_hint)
        self._check_conditions()
        self.registration.set_busy(False)
