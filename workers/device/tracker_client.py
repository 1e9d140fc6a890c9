"""A client of the RPC tracker over a plain socket, without TVM; all calls have timeouts."""

import json
import os
import secrets
import select
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any, Final, Self

from mallorn.core.address_checks import ROOT_UID, connected_uid, user_name
from mallorn.core.errors import Unavailable
from mallorn.core.fleet_key import HINT, FleetKey
from mallorn.core.os_errors import explain_os_error
from mallorn.core.targets import Target

TRACKER_MAGIC: Final = 0x2F271
RPC_MAGIC: Final = 0xFF271
RPC_MISMATCH: Final = RPC_MAGIC + 2
#: Our own message codes, by which both sides prove that they know the fleet's key.
HELLO, PROVE, REFUSED = 100, 101, 102
SUCCESS, PUT, REQUEST, UPDATE_INFO, SUMMARY, PENDING_MATCHKEYS = 0, 3, 4, 5, 6, 7
_INT = struct.Struct("<i")
_MESSAGE_LIMIT_BYTES = 1 << 24
NO_KEY: Final = FleetKey()

Address = tuple[str, int]


def tracker_key(target: Target) -> str:
    return f"mallorn-{target.key}"


class TrackerClient:
    """A connection to a tracker. Methods raise Unavailable if the tracker does not answer."""

    def __init__(self, address: Address, timeout_sec: float = 10.0, key: FleetKey = NO_KEY) -> None:
        self.address = address
        try:
            self._socket = socket.create_connection(address, timeout_sec)
        except OSError as error:
            raise self._unavailable(error) from None
        try:
            self._authenticate(key)
        except Unavailable:
            self.close()
            raise

    def summary(self) -> Any:
        """Return the tracker's state: ``queue_info``, the queue of each key, and
        ``server_info``, the descriptions of registered devices."""
        return self._send_and_receive([SUMMARY])[1]

    def request_device(
        self, key: str, timeout_sec: float, class_text: str = "", asker: socket.socket | None = None
    ) -> tuple[str, int, str] | None:
        """Wait for a free server; return host, port and match key, or None on timeout.

        `class_text` is the text of a DeviceClass; trackers of older versions ignore it.
        Raises Unavailable if `asker`, the client for which this waits, leaves. After None,
        close this connection, or the tracker may assign it a server that nobody uses.
        """
        self._socket.settimeout(timeout_sec)
        try:
            self._send([REQUEST, key, class_text, 1])
            if asker is not None and not wait_for_data(self._socket, asker, timeout_sec):
                return None
            host, port, match_key = self._receive()[1]
        except TimeoutError:
            return None
        except OSError as error:
            raise self._unavailable(error) from None
        return str(host), int(port), str(match_key)

    def offer_device(self, key: str, host: str, port: int, match_key: str) -> None:
        """Register a server as free, with the match key that opens its next session."""
        self._send_and_receive([PUT, key, [port, match_key], host])

    def send_description(self, info: Mapping[str, object]) -> None:
        """Send a description of the server that uses this connection, for `summary`."""
        self._send_and_receive([UPDATE_INFO, info])

    def list_pending_match_keys(self) -> list[str]:
        """Return the match keys offered on this connection that no client has received."""
        return list(self._send_and_receive([PENDING_MATCHKEYS]))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _authenticate(self, key: FleetKey) -> None:
        """Greet the tracker; both sides prove that they know the fleet's key, if there is
        one. Raises Unavailable if the tracker does not answer or proves nothing."""
        try:
            self._socket.sendall(_INT.pack(TRACKER_MAGIC))
            magic = _INT.unpack(receive_exactly(self._socket, _INT.size))[0]
        except OSError as error:
            raise self._unavailable(error) from None
        if magic != TRACKER_MAGIC:
            raise Unavailable(
                f"{self.address[0]}:{self.address[1]} is not a TVM RPC tracker", hint="mallorn tracker"
            )
        if not key and (uid := connected_uid(self._socket)) not in (None, os.getuid(), ROOT_UID):
            raise self._refused(f"belongs to {user_name(uid)}")
        our_nonce = secrets.token_hex(16)
        answer = self._send_and_receive([HELLO, our_nonce])
        if not isinstance(answer, list) or len(answer) != 3:
            raise self._refused("does not answer like Mallorn's tracker")
        tracker_nonce, needs_key, proof = answer
        if needs_key and not key:
            raise self._refused("requires the fleet's key, and this process has none")
        if key and not key.is_valid_signature(str(proof), "tracker", our_nonce, str(tracker_nonce)):
            raise self._refused("does not know this process's key of the fleet")
        our_proof = key.sign("peer", our_nonce, str(tracker_nonce))
        if key and self._send_and_receive([PROVE, our_proof]) != SUCCESS:
            raise self._refused("does not accept this process's key of the fleet")

    def _refused(self, reason: str) -> Unavailable:
        return Unavailable(f"the tracker at {self.address[0]}:{self.address[1]} {reason}", hint=HINT)

    def _send_and_receive(self, message: list[Any]) -> Any:
        try:
            self._send(message)
            return self._receive()
        except OSError as error:
            raise self._unavailable(error) from None

    def _send(self, message: list[Any]) -> None:
        body = json.dumps(message).encode()
        self._socket.sendall(_INT.pack(len(body)) + body)

    def _receive(self) -> Any:
        (size,) = _INT.unpack(receive_exactly(self._socket, _INT.size))
        if not 0 < size <= _MESSAGE_LIMIT_BYTES:
            raise ConnectionError(f"the tracker's port sent {size} bytes: another program may listen")
        try:
            return json.loads(receive_exactly(self._socket, size))
        except (ValueError, RecursionError):
            raise ConnectionError("the tracker's port sent no JSON: another program may listen") from None

    def _unavailable(self, error: OSError) -> Unavailable:
        host_error = explain_os_error(error)
        if isinstance(host_error, Unavailable):  # this host is at fault, not the tracker
            return host_error
        host, port = self.address
        return Unavailable(
            f"no tracker answers at {host}:{port}: {error}", hint=f"mallorn tracker --port {port}"
        )


def wait_for_data(readable: socket.socket, asker: socket.socket, timeout_sec: float) -> bool:
    """Return whether data arrives in time. Raises ConnectionError if `asker` closes."""
    poller = select.poll()
    poller.register(readable, select.POLLIN)
    poller.register(asker, select.POLLRDHUP)
    ready = {fd for fd, _ in poller.poll(timeout_sec * 1000)}
    if asker.fileno() in ready:
        raise ConnectionError("who asked is gone")
    return bool(ready)


def receive_exactly(end: socket.socket, size: int) -> bytes:
    """Return the next `size` bytes. Raises ConnectionError at the end, or TimeoutError."""
    data, timeout_sec = bytearray(), end.gettimeout()
    deadline_sec = None if timeout_sec is None else time.monotonic() + timeout_sec
    # TVM's peers write a message in parts and wait after the first for an acknowledgement,
    # which the kernel delays by 40 ms unless TCP_QUICKACK is set before every read.
    while len(data) < size:
        if end.family != socket.AF_UNIX:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if deadline_sec is not None:
            # One deadline for the message: a peer that sends single bytes could hold us for hours.
            left_sec = deadline_sec - time.monotonic()
            if left_sec <= 0:
                raise TimeoutError("timed out")
            end.settimeout(left_sec)
        chunk = end.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the connection was closed")
        data += chunk
    end.settimeout(timeout_sec)
    return bytes(data)
