"""The RPC tracker's own protocol over a plain socket: no TVM in the process, and no call without an end."""

import json
import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from mallorn.core.errors import Unavailable
from mallorn.core.targets import Target

TRACKER_MAGIC: Final = 0x2F271
RPC_MAGIC: Final = 0xFF271
RPC_MISMATCH: Final = RPC_MAGIC + 2
SUCCESS, PUT, REQUEST, UPDATE_INFO, SUMMARY, PENDING_MATCHKEYS = 0, 3, 4, 5, 6, 7
_INT = struct.Struct("<i")
_MESSAGE_LIMIT_BYTES = 1 << 24

Address = tuple[str, int]


def device_key(target: Target) -> str:
    """The tracker key that the devices of a target are filed under."""
    return f"mallorn-{target.key}"


class TrackerClient:
    """One connection to a tracker. Every method raises Unavailable when the tracker does not answer."""

    def __init__(self, address: Address, timeout_sec: float = 10.0) -> None:
        self.address = address
        try:
            self._socket = socket.create_connection(address, timeout_sec)
        except OSError as error:
            raise self._unavailable(error) from None
        self._greet()

    def summary(self) -> Any:
        """What is registered: `queue_info` by key and `server_info`, what the servers say of themselves."""
        return self._ask([SUMMARY])[1]

    def request(self, key: str, timeout_sec: float) -> tuple[str, int, str] | None:
        """Wait for a free server of `key`: its host, port and match key. None when the time is over.

        Close the connection after None: a server that comes free would be handed to nobody.
        """
        self._socket.settimeout(timeout_sec)
        try:
            self._send([REQUEST, key, "", 1])
            host, port, match_key = self._receive()[1]
        except TimeoutError:
            return None
        except OSError as error:
            raise self._unavailable(error) from None
        return str(host), int(port), str(match_key)

    def put(self, key: str, host: str, port: int, match_key: str) -> None:
        """Offer a server that is free."""
        self._ask([PUT, key, [port, match_key], host])

    def update(self, info: Mapping[str, object]) -> None:
        """Say something about the server at this end; it shows in `summary`."""
        self._ask([UPDATE_INFO, info])

    def pending(self) -> list[str]:
        """Match keys that were offered here and not yet handed to a client."""
        return list(self._ask([PENDING_MATCHKEYS]))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _greet(self) -> None:
        try:
            self._socket.sendall(_INT.pack(TRACKER_MAGIC))
            answer = _INT.unpack(receive_exactly(self._socket, _INT.size))[0]
        except OSError as error:
            self.close()
            raise self._unavailable(error) from None
        if answer != TRACKER_MAGIC:
            self.close()
            raise Unavailable(
                f"{self.address[0]}:{self.address[1]} is no TVM RPC tracker", hint="mallorn tracker"
            )

    def _ask(self, message: list[Any]) -> Any:
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
            raise ConnectionError(f"a message of {size} bytes")
        return json.loads(receive_exactly(self._socket, size))

    def _unavailable(self, error: OSError) -> Unavailable:
        host, port = self.address
        return Unavailable(
            f"the tracker at {host}:{port} does not answer: {error}", hint=f"mallorn tracker --port {port}"
        )


def receive_exactly(end: socket.socket, size: int) -> bytes:
    """Read `size` bytes; ConnectionError when the stream ends before."""
    data = bytearray()
    # TVM's peers write a message in parts and wait after the first for an acknowledgement, which the kernel
    # holds back for 40 ms unless it is told not to before every read.
    while len(data) < size:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        chunk = end.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the connection was closed")
        data += chunk
    return bytes(data)
