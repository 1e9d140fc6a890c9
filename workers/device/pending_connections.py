"""Holds connections to a device until their greetings are complete, without blocking."""

import logging
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final, Protocol

from mallorn.workers.device.tracker_client import RPC_MAGIC

MOST: Final = 64
MOST_OF_AN_ADDRESS: Final = 16


class Closable(Protocol):
    def close(self) -> None: ...


class Unauthenticated:
    """Limits the number of unauthenticated connections. The oldest are closed first,
    because honest peers authenticate quickly."""

    def __init__(self) -> None:
        self._addresses: dict[Closable, str] = {}

    def add(self, connection: Closable, address: str) -> None:
        """Add a connection. If its address has too many, close the oldest of them; if all
        addresses together have too many, close the oldest of the address that has most."""
        self._addresses[connection] = address
        crowds = Counter(self._addresses.values())
        if crowds[address] > MOST_OF_AN_ADDRESS:
            self._close_oldest(address)
        elif len(self._addresses) > MOST:
            self._close_oldest(crowds.most_common(1)[0][0])

    def remove(self, connection: Closable) -> None:
        self._addresses.pop(connection, None)

    def _close_oldest(self, address: str) -> None:
        oldest = next(connection for connection, origin in self._addresses.items() if origin == address)
        self.remove(oldest)
        oldest.close()


log = logging.getLogger(__name__)
PATIENCE_SEC: Final = 5.0
_HEAD: Final = struct.Struct("<ii")
_NAME_LIMIT_BYTES: Final = 1024


class PendingConnection:
    """A connection whose client has not presented its ticket yet."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.until_sec = time.monotonic() + PATIENCE_SEC
        self._received = b""

    def close(self) -> None:
        self.connection.close()

    def read_greeting(self) -> str | None:
        """Return the client's greeting; None if incomplete. Raises OSError if malformed."""
        data = self.connection.recv(self._expected_bytes() - len(self._received))
        if not data:
            raise ConnectionError("the connection was closed")
        self._received += data
        if len(self._received) < self._expected_bytes() or len(self._received) == _HEAD.size:
            return None
        try:
            return self._received[_HEAD.size :].decode()
        except UnicodeDecodeError:
            raise ConnectionError("the greeting of the client is not UTF-8 text") from None

    def _expected_bytes(self) -> int:
        if len(self._received) < _HEAD.size:
            return _HEAD.size
        magic, size = _HEAD.unpack_from(self._received)
        if magic != RPC_MAGIC or not 0 < size < _NAME_LIMIT_BYTES:
            raise ConnectionError("the client does not speak TVM RPC")
        return int(_HEAD.size + size)


class PendingConnections:
    """The clients of one listener whose greetings are incomplete, by file descriptor."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._waiting = Unauthenticated()
        self._clients: dict[int, PendingConnection] = {}

    def __iter__(self) -> Iterator[int]:
        """Drop clients that are closed or too late; yield the others' descriptors."""
        for number, client in list(self._clients.items()):
            if client.connection.fileno() < 0:  # it was closed to make room for another
                del self._clients[number]
            elif time.monotonic() > client.until_sec:
                self._drop(number, "it did not finish its greeting")
        return iter(list(self._clients))

    def accept(self) -> None:
        try:
            connection, address = self._listener.accept()
        except OSError:  # the client is gone
            return
        client = PendingConnection(connection)
        self._clients[connection.fileno()] = client
        self._waiting.add(client, str(address[0]))

    def read_greeting(self, number: int) -> tuple[socket.socket, str] | None:
        """Return a client's socket and greeting, and forget the client. Return None while
        the greeting is incomplete, or if the client was dropped."""
        client = self._clients.get(number)
        if client is None:
            return None
        try:
            words = client.read_greeting()
        except BlockingIOError:
            return None
        except OSError as error:
            self._drop(number, str(error))
            return None
        if words is None:
            return None
        self._waiting.remove(self._clients.pop(number))
        return client.connection, words

    def clear(self) -> None:
        for number in list(self._clients):
            self._drop(number, "another has the session")

    def _drop(self, number: int, reason: str) -> None:
        client = self._clients.pop(number)
        self._waiting.remove(client)
        client.close()
        log.info("a client got no session: %s", reason)
