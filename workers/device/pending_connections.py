"""Where a device's clients wait until they have said who they are; none of them holds up the others."""

import logging
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final, Protocol

from workers.device.tracker_client import RPC_MAGIC

MOST: Final = 64
MOST_OF_AN_ADDRESS: Final = 16


class Guest(Protocol):
    def close(self) -> None: ...


class Unauthenticated:
    """The connections that wait, oldest first. Who is honest proves itself at once, and is seldom so old."""

    def __init__(self) -> None:
        self._addresses: dict[Guest, str] = {}

    def add(self, guest: Guest, address: str) -> None:
        """Let it wait. Of too many the oldest of its address is closed, or of the most crowded one."""
        self._addresses[guest] = address
        crowds = Counter(self._addresses.values())
        if crowds[address] > MOST_OF_AN_ADDRESS:
            self._turn_out_of(address)
        elif len(self._addresses) > MOST:
            self._turn_out_of(crowds.most_common(1)[0][0])

    def remove(self, guest: Guest) -> None:
        """It has proven itself, or is gone."""
        self._addresses.pop(guest, None)

    def _turn_out_of(self, address: str) -> None:
        oldest = next(guest for guest, of in self._addresses.items() if of == address)
        self.remove(oldest)
        oldest.close()


log = logging.getLogger(__name__)
PATIENCE_SEC: Final = 5.0
_HEAD: Final = struct.Struct("<ii")
_NAME_LIMIT_BYTES: Final = 1024


class PendingConnection:
    """A connection that has not shown its ticket yet."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.until_sec = time.monotonic() + PATIENCE_SEC
        self._said = b""

    def close(self) -> None:
        self.connection.close()

    def hear(self) -> str | None:
        """All that it says before it is answered; None until that is whole. Raises OSError for noise."""
        data = self.connection.recv(self._wanted() - len(self._said))
        if not data:
            raise ConnectionError("the connection was closed")
        self._said += data
        if len(self._said) < self._wanted() or len(self._said) == _HEAD.size:
            return None
        try:
            return self._said[_HEAD.size :].decode()
        except UnicodeDecodeError:
            raise ConnectionError("what it says is no text") from None

    def _wanted(self) -> int:
        """How many bytes are known to come."""
        if len(self._said) < _HEAD.size:
            return _HEAD.size
        magic, size = _HEAD.unpack_from(self._said)
        if magic != RPC_MAGIC or not 0 < size < _NAME_LIMIT_BYTES:
            raise ConnectionError("it speaks another protocol")
        return int(_HEAD.size + size)


class PendingConnections:
    """The clients of one listener, by the number of their file."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._waiting = Unauthenticated()
        self._clients: dict[int, PendingConnection] = {}

    def __iter__(self) -> Iterator[int]:
        """Of those that may have something to say. Whose time is over goes first."""
        for number, client in list(self._clients.items()):
            if client.connection.fileno() < 0:  # it made room for another
                del self._clients[number]
            elif time.monotonic() > client.until_sec:
                self._drop(number, "it did not finish its greeting")
        return iter(list(self._clients))

    def let_in(self) -> None:
        """Accept the connection that waits, if it is still there."""
        try:
            connection, address = self._listener.accept()
        except OSError:  # it is gone again
            return
        client = PendingConnection(connection)
        self._clients[connection.fileno()] = client
        self._waiting.add(client, str(address[0]))

    def hear(self, number: int) -> tuple[socket.socket, str] | None:
        """A client that has said all, and what: it is the caller's from now on. None while there is none."""
        client = self._clients.get(number)
        if client is None:
            return None
        try:
            words = client.hear()
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
        """Close all connections that wait."""
        for number in list(self._clients):
            self._drop(number, "another has the session")

    def _drop(self, number: int, why: str) -> None:
        client = self._clients.pop(number)
        self._waiting.remove(client)
        client.close()
        log.info("a client got no session: %s", why)
