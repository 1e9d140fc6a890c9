"""Length-prefixed JSON frames over a socket, without ever blocking."""

import contextlib
import json
import select
import socket
import struct
from typing import Any

_HEADER = struct.Struct("!Q")
_CHUNK_BYTES = 1 << 18


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a conversation. `put` and `pump` return at once; `wait` sleeps until there is work."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.setblocking(False)
        self._outgoing = bytearray()
        self._incoming = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def pending(self) -> bool:
        """Whether queued bytes wait to be sent."""
        return bool(self._outgoing)

    @property
    def events(self) -> int:
        """The `select.poll` events worth waiting for."""
        return select.POLLIN | (select.POLLOUT if self._outgoing else 0)

    def put(self, message: dict[str, Any]) -> None:
        """Queue a frame and send what the socket takes now."""
        body = json.dumps(message, separators=(",", ":")).encode()
        self._outgoing += _HEADER.pack(len(body)) + body
        self.flush()

    def pump(self) -> dict[str, Any] | None:
        """Move bytes both ways; the next whole frame, or None.

        Raises ChannelClosed at the end of the stream.
        """
        self.flush()
        closed = self._fill()
        message = self._next_frame()
        if message is None and closed:
            raise ChannelClosed
        return message

    def wait(self, timeout_sec: float | None) -> bool:
        """Sleep until `pump` can make progress; False when the time is over."""
        poller = select.poll()
        poller.register(self._socket, self.events)
        return bool(poller.poll(None if timeout_sec is None else max(0.0, timeout_sec) * 1000))

    def close(self) -> None:
        self._socket.close()

    def flush(self) -> None:
        """Send what the socket takes now."""
        # A closed peer shows itself as end of stream in `_fill`, after its last words were read.
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._outgoing:
                sent = self._socket.send(memoryview(self._outgoing)[:_CHUNK_BYTES])
                del self._outgoing[:sent]

    def _fill(self) -> bool:
        try:
            while chunk := self._socket.recv(_CHUNK_BYTES):
                self._incoming += chunk
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        return True

    def _next_frame(self) -> dict[str, Any] | None:
        if len(self._incoming) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._incoming)
        end = _HEADER.size + length
        if len(self._incoming) < end:
            return None
        body = bytes(memoryview(self._incoming)[_HEADER.size : end])
        del self._incoming[:end]
        return dict(json.loads(body))
