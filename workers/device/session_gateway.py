"""Opens device sessions for a runner, which never gets the fleet's key; filters answers.

A session runs untrusted native code, and TVM's client obeys requests of its peer, such as
``CallFunc``, while it waits for an answer. So a runner asks its worker, which authenticates to
tracker and device, sends the runner a socket, and forwards only packets that answer a call.
A runner without a seccomp filter connects to a loopback port of the worker, with a ticket.
"""

import gc
import json
import logging
import os
import secrets
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final, NamedTuple

from mallorn.core.errors import MallornError, Unavailable
from mallorn.core.fleet_key import FleetKey
from mallorn.core.os_errors import explain_os_error
from mallorn.workers.device.device_class import DeviceClass, class_text_of_entry, no_device_error
from mallorn.workers.device.rpc_handshake import enable_keepalive, open_session, read_greeting, send_greeting
from mallorn.workers.device.tracker_client import NO_KEY, Address, TrackerClient, wait_for_data
from mallorn.workers.sandbox.seccomp import is_socket_given
from mallorn.workers.subprocesses.errors import pack_error, unpack_error

log = logging.getLogger(__name__)
#: Environment variable that holds the file descriptor of a runner's socket.
GATEWAY_VARIABLE: Final = "MALLORN_GATEWAY_FD"
PATIENCE_SEC: Final = 5.0
_RUNNER_SEC: Final = 60.0  # for a runner to connect after its request
_CHUNK_BYTES: Final = 1 << 18
_LINE_BYTES: Final = 1 << 16
_NO_PORT: Final = 1  # for a runner whose socket is already connected
# Head of a packet in TVM's protocol: number of bytes that follow, and code of the packet.
_PACKET: Final = struct.Struct("<Qi")
_CODE_BYTES: Final = 4
_RETURN, _EXCEPTION, _COPY_ACK = 4, 5, 8
ANSWERS: Final = frozenset({_RETURN, _EXCEPTION, _COPY_ACK})
#: TVM allocates memory for a packet before the packet arrives.
PACKET_LIMIT_BYTES: Final = 1 << 32


class OpenSession(NamedTuple):
    """A session's port and ticket, and keys that prove that the device is of the fleet."""

    port: int
    ticket: str
    keys: tuple[FleetKey, ...]


class SessionGateway:
    """The worker's side: one thread for each runner, and two threads for each session."""

    def __init__(self, key: FleetKey = NO_KEY) -> None:
        self._key = key

    def connect_runner(self) -> socket.socket:
        """Return a socket for a new runner, whose requests are answered until it closes."""
        end, runner_end = socket.socketpair()
        threading.Thread(target=self._answer_all, args=(end,), name="session-gateway", daemon=True).start()
        return runner_end

    def _answer_all(self, end: socket.socket) -> None:
        with end, end.makefile("rb") as questions:
            try:
                while line := questions.readline(_LINE_BYTES):
                    with ExitStack() as descriptors:
                        answer, fds = self._answer(end, descriptors, **json.loads(line))
                        socket.send_fds(end, [json.dumps(answer).encode() + b"\n"], fds)
            except (OSError, ValueError, TypeError, KeyError) as error:
                log.info("a runner gets no more sessions: %s", error)

    def _answer(
        self,
        runner: socket.socket,
        descriptors: ExitStack,
        tracker: Sequence[Any],
        key: str,
        wait_sec: float,
        like: list[Any] | None,
        by_port: bool,
    ) -> tuple[Any, list[int]]:
        """Open a session; return the answer and what to send; `descriptors` closes it."""
        host, port = tracker
        device_class = None if like is None else DeviceClass(*like)
        ticket, own_port, fds = secrets.token_hex(16), _NO_PORT, list[int]()
        resources = ExitStack()
        try:
            if by_port:
                listener = resources.enter_context(socket.create_server(("127.0.0.1", 0)))
                watched = resources.enter_context(runner.dup())  # until its session begins
                spare = resources.enter_context(runner.dup())  # a descriptor for the runner
                own_port = listener.getsockname()[1]
                accept = partial(_accept_client, listener, ticket, watched, spare)
            else:
                client, runner_end = socket.socketpair()
                resources.enter_context(client)
                fds.append(descriptors.enter_context(runner_end).fileno())
                accept = partial(_greet_client, client, ticket)
            device, match_key = self._take_device((str(host), int(port)), key, wait_sec, device_class, runner)
        except (MallornError, OSError) as error:  # this host may have no file descriptor left
            resources.close()
            return {"error": pack_error(error)}, []
        keys = [session_key.text for session_key in self._key.derive_session_keys(match_key)]
        threading.Thread(target=_relay, args=(accept, device), daemon=True).start()
        return {"port": own_port, "ticket": ticket, "keys": keys}, fds

    def _take_device(
        self,
        tracker: Address,
        key: str,
        wait_sec: float,
        device_class: DeviceClass | None,
        runner: socket.socket,
    ) -> tuple[socket.socket, str]:
        """Wait for a free device of the class; return its connection and match key. Raises
        NoDevice if none is registered, Unavailable if all are busy or out of reach."""
        deadline_sec = time.monotonic() + wait_sec
        class_text, reason = "" if device_class is None else device_class.json_text, "stayed busy"
        while True:
            with TrackerClient(tracker, key=self._key) as client:
                if not any(
                    server["key"] == f"server:{key}" and class_text in ("", class_text_of_entry(server))
                    for server in client.summary()["server_info"]
                ):
                    raise no_device_error(device_class)
                left_sec = deadline_sec - time.monotonic()
                if left_sec <= 0:
                    raise Unavailable(f"all devices {reason} for {wait_sec:g} s", hint="mallorn devices")
                offer = client.request_device(key, min(PATIENCE_SEC, left_sec), class_text, runner)
            if offer is not None:
                host, port, match_key = offer
                try:
                    return open_session((host, port), match_key, self._key, PATIENCE_SEC), match_key
                except OSError as error:
                    if (host_error := explain_os_error(error)) is not None:
                        raise host_error from error
                    # The device died after it was offered; the tracker will notice in a moment.
                    reason = f"stayed busy, or out of reach as {host}:{port} ({error})"
                    log.warning("a device at %s:%s is not reached: %s", host, port, error)
                    time.sleep(0.1)


def ask_for_session(
    gateway: socket.socket, tracker: Address, key: str, wait_sec: float, device_class: DeviceClass | None
) -> OpenSession:
    """Have the worker open a session with a free device. Raises NoDevice or Unavailable."""
    question = {"tracker": tracker, "key": key, "wait_sec": wait_sec, "like": device_class}
    by_port = not is_socket_given()
    gateway.sendall(json.dumps(question | {"by_port": by_port}).encode() + b"\n")
    line, fds = b"", list[int]()
    while not line.endswith(b"\n"):
        data, more_fds, _, _ = socket.recv_fds(gateway, _LINE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise Unavailable("the worker process that opens sessions has ended", hint="mallorn worker")
        line, fds = line + data, fds + more_fds
    answer = json.loads(line)
    if "error" in answer:
        raise unpack_error(json.dumps(answer["error"]).encode())
    if fds:
        _move_to_descriptor_zero(fds[0])
    return OpenSession(answer["port"], answer["ticket"], tuple(map(FleetKey, answer["keys"])))


def _move_to_descriptor_zero(session_fd: int) -> None:
    """Make a session's socket descriptor 0, which TVM's client then uses
    (sandbox/seccomp.py). End this process if an earlier session still uses it."""
    gc.collect()
    keep_descriptor_zero()
    if session_fd != 0:
        if stat.S_ISSOCK(os.fstat(0).st_mode):
            sys.exit("objects of the last device's session are still in use")
        os.dup2(session_fd, 0, inheritable=False)
        os.close(session_fd)


def keep_descriptor_zero() -> None:
    """Open descriptor 0 if it is closed, so that no other file gets this number."""
    null_fd = os.open(os.devnull, os.O_RDONLY)
    if null_fd != 0:
        os.close(null_fd)


def _relay(accept: Callable[[], socket.socket | None], device: socket.socket) -> None:
    with device:
        client = accept()
        if client is None:
            return
        with client:
            device.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            enable_keepalive(device)
            calls = threading.Thread(target=_forward_calls, args=(client, device), daemon=True)
            calls.start()
            with suppress(OSError):
                _forward_answers(device, client)
            for end in (client, device):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            calls.join()


def _accept_client(
    listener: socket.socket, ticket: str, runner: socket.socket, spare: socket.socket
) -> socket.socket | None:
    """Wait for the connection that presents the ticket, as long as the runner waits."""
    with listener, runner, spare, suppress(OSError):
        while wait_for_data(listener, runner, _RUNNER_SEC):
            spare.close()
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if (client := _greet_client(connection, ticket)) is not None:
                return client
    return None


def _greet_client(client: socket.socket, ticket: str) -> socket.socket | None:
    """Answer and return a client that greets with the ticket; close another one."""
    client.settimeout(PATIENCE_SEC)
    try:
        words = read_greeting(client).split()
        if words and secrets.compare_digest(words[0].encode(), f"client:{ticket}".encode()):
            send_greeting(client, "gateway")
            client.settimeout(None)
            return client
    except OSError as error:
        log.info("a client did not open its session: %s", error)
    client.close()
    return None


def _forward_calls(client: socket.socket, device: socket.socket) -> None:
    """Forward all that the client sends, then close the stream to the device."""
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    with suppress(OSError):
        while count := client.recv_into(buffer):
            device.sendall(buffer[:count])
    with suppress(OSError):
        device.shutdown(socket.SHUT_WR)


def _forward_answers(device: socket.socket, client: socket.socket) -> None:
    """Forward packets that answer a call; return at any other packet, which is dropped."""
    with device.makefile("rb", _CHUNK_BYTES) as stream:
        while len(head := stream.read(_PACKET.size)) == _PACKET.size:
            size, code = _PACKET.unpack(head)
            if code not in ANSWERS or not _CODE_BYTES <= size <= PACKET_LIMIT_BYTES:
                log.warning("a session sent a packet of kind %d and %d bytes, and was ended", code, size)
                return
            left_bytes = size - _CODE_BYTES
            piece = stream.read(min(left_bytes, _CHUNK_BYTES))
            client.sendall(head + piece)
            while piece and (left_bytes := left_bytes - len(piece)):
                piece = stream.read(min(left_bytes, _CHUNK_BYTES))
                client.sendall(piece)
