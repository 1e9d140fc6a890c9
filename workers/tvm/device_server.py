"""The loop of a device: offer itself to the tracker, serve one session, offer itself again."""

import logging
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm.rpc import _ffi_api as rpc_api

from mallorn.core.errors import Unavailable
from mallorn.core.targets import Target
from workers.tvm.forks import fork, how_it_ended
from workers.tvm.session import Session
from workers.tvm.tracker_client import (
    RPC_MAGIC,
    RPC_MISMATCH,
    Address,
    TrackerClient,
    device_key,
    receive_exactly,
)

log = logging.getLogger(__name__)

PING_SEC = 1.0
# A client that was given our key and has not connected after this long never will.
UNCLAIMED_SEC = 2.0
HANDSHAKE_TIMEOUT_SEC = 5.0
_INT = struct.Struct("<i")


@dataclass
class Running:
    """The session in progress."""

    pid: int
    pid_fd: int
    connection: socket.socket
    folder: Path
    abandoned: bool = False  # its client hung up


class DeviceServer:
    """Serves one session at a time. A session that dies takes its process along and nothing else."""

    def __init__(
        self,
        tracker: Address,
        target: Target,
        listener: socket.socket,
        identity: dict[str, Any],
        folder: Path,
        log_path: Path | None,
    ) -> None:
        self._tracker_address = tracker
        self._key = device_key(target)
        self._listener = listener
        self._identity = identity
        self._folder = folder
        self._log_path = log_path.absolute() if log_path else None
        self._tracker: TrackerClient | None = None
        self._running: Running | None = None
        self._complained = False
        self._match_key = ""
        self._offered_sec = 0.0

    def serve_forever(self) -> None:
        """Wait for clients, ends of sessions and a lost tracker, in turn."""
        while True:
            self._keep_registered()
            for ready_fd in self._wait():
                if ready_fd == self._listener.fileno():
                    self._accept()
                elif self._running is not None and ready_fd == self._running.pid_fd:
                    self._end_session(self._running)
                elif self._running is not None and ready_fd == self._running.connection.fileno():
                    self._abandon(self._running)
                elif self._tracker is not None and ready_fd == self._tracker.fileno():
                    # It never speaks unasked: this is the end of its stream.
                    self._forget_tracker()

    def _wait(self) -> list[int]:
        poller = select.poll()
        if self._running is None:
            poller.register(self._listener, select.POLLIN)
        else:
            poller.register(self._running.pid_fd, select.POLLIN)
            if not self._running.abandoned:
                poller.register(self._running.connection, select.POLLRDHUP)
        if self._tracker is not None:
            poller.register(self._tracker, select.POLLIN)
        return [ready_fd for ready_fd, _ in poller.poll(PING_SEC * 1000)]

    def _keep_registered(self) -> None:
        if self._tracker is None:
            self._tell(self._register)
        elif self._running is None:
            self._tell(self._offer_again)

    def _tell(self, step: Callable[[], None]) -> None:
        """Talk to the tracker; one that does not answer is called again from `_keep_registered`."""
        try:
            step()
            self._complained = False
        except Unavailable as error:
            if not self._complained:
                log.warning("%s; trying again every second", error.message)
            self._complained = True
            self._forget_tracker()

    def _register(self) -> None:
        self._tracker = TrackerClient(self._tracker_address)
        log.info("registered with the tracker at %s:%d as %s", *self._tracker_address, self._key)
        self._announce()

    def _announce(self) -> None:
        """Tell the tracker who we are and, between sessions, offer ourselves under a new match key."""
        if self._tracker is None:
            return
        host, port = self._listener.getsockname()[:2]
        busy = self._running is not None
        info = {"key": f"server:{self._key}", "addr": [host, port], "busy": busy, "mallorn": self._identity}
        self._tracker.update(info)
        if not busy:
            self._match_key = f"{self._key}:{secrets.token_hex(8)}"
            self._tracker.put(self._key, host, port, self._match_key)
            self._offered_sec = time.monotonic()

    def _offer_again(self) -> None:
        if self._tracker is None or self._match_key in self._tracker.pending():
            self._offered_sec = time.monotonic()
        elif time.monotonic() - self._offered_sec > UNCLAIMED_SEC:
            log.info("the client that was given our key never came")
            self._announce()

    def _forget_tracker(self) -> None:
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None

    def _accept(self) -> None:
        connection, peer = self._listener.accept()
        try:
            welcome = self._greet(connection)
        except (OSError, UnicodeDecodeError) as error:
            log.warning("a client at %s did not finish its greeting: %s", peer[0], error)
            welcome = False
        if welcome:
            self._start_session(connection)
        else:
            connection.close()

    def _greet(self, connection: socket.socket) -> bool:
        """Let in only the client that the tracker gave our current key to."""
        connection.settimeout(HANDSHAKE_TIMEOUT_SEC)
        magic, size = struct.unpack("<ii", receive_exactly(connection, 8))
        if magic != RPC_MAGIC or not 0 < size < 1024:
            return False
        words = receive_exactly(connection, size).decode().split()
        if not words or words[0] != f"client:{self._match_key}":
            connection.sendall(_INT.pack(RPC_MISMATCH))
            return False
        name = f"server:{self._key}".encode()
        connection.sendall(_INT.pack(RPC_MAGIC) + _INT.pack(len(name)) + name)
        connection.settimeout(None)
        _notice_dead_peer(connection)
        return True

    def _start_session(self, connection: socket.socket) -> None:
        self._match_key = ""  # a key opens one session
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        session = Session(self._identity, folder, self._log_path)
        pid = fork(lambda: self._become(session, connection))
        self._running = Running(pid, os.pidfd_open(pid), connection, folder)
        self._tell(self._announce)

    def _become(self, session: Session, connection: socket.socket) -> None:
        self._listener.close()
        self._forget_tracker()
        session.serve(connection.fileno())

    def _abandon(self, running: Running) -> None:
        """The client is gone: nobody waits for the candidate that may still run."""
        running.abandoned = True
        os.kill(running.pid, signal.SIGKILL)

    def _end_session(self, running: Running) -> None:
        status = os.waitpid(running.pid, 0)[1]
        if status != 0 and not running.abandoned:
            log.warning("a session ended badly: %s", how_it_ended(status))
            _say_last_words(running.connection, f"SessionDied: {how_it_ended(status)}")
        os.close(running.pid_fd)
        running.connection.close()
        shutil.rmtree(running.folder, ignore_errors=True)
        self._running = None
        self._tell(self._announce)


def _say_last_words(connection: socket.socket, text: str) -> None:
    """Answer the call that the session died in, so that its client learns how."""
    try:
        rpc_api.ReturnException(connection.fileno(), text)
    except (OSError, RuntimeError) as error:
        log.info("the client is gone too: %s", error)


def _notice_dead_peer(connection: socket.socket) -> None:
    """Have the kernel end the stream when the client's host disappears."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
