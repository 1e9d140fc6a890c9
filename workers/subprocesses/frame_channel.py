"""Length-prefixed frames over a non-blocking socket."""

import contextlib
import select
import socket
import struct
from math import inf
from typing import Final, NamedTuple

#: Largest frame that a child may send; large arrays are passed in files.
FRAME_LIMIT_BYTES: Final = 1 << 28
_HEADER = struct.Struct("!Q")
_END = b"\n"  # of a frame's head
_CHUNK_BYTES = 1 << 18


class Frame(NamedTuple):
    """A message: `head` is its kind or the method's name, `body` its payload."""

    head: str
    body: bytes = b""


class ChannelClosed(Exception):
    """Raised when the other side has closed the connection."""


class FrameTooLarge(Exception):
    """Raised when the other side announces a frame over the limit."""


class Channel:
    """Sends and receives frames on a socket. `put` and `receive_frame` never block; `wait`
    sleeps until `receive_frame` can progress. It buffers a frame of up to `limit_bytes`."""

    def __init__(self, end: socket.socket, limit_bytes: float = inf) -> None:
        self._socket = end
        self._limit_bytes = limit_bytes
        self._socket.setblocking(False)
        self._outgoing = bytearray()
        self._incoming = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_pending(self) -> bool:
        """Whether queued bytes wait to be sent."""
        return bool(self._outgoing)

    @property
    def events(self) -> int:
        return select.POLLIN | (select.POLLOUT if self._outgoing else 0)

    def put(self, frame: Frame) -> None:
        """Queue a frame and send as much as the socket accepts without blocking."""
        payload = frame.head.encode() + _END + frame.body
        self._outgoing += _HEADER.pack(len(payload)) + payload
        self.flush()

    def receive_frame(self) -> Frame | None:
        """Send and receive without blocking; return the next complete frame, or None. Raises
        ChannelClosed at the end of the stream, FrameTooLarge for a frame over the limit."""
        self.flush()
        is_closed = self._fill()
        if self._missing_bytes():
            if is_closed:
                raise ChannelClosed
            return None
        head, _, body = bytes(memoryview(self._incoming)[_HEADER.size :]).partition(_END)
        self._incoming.clear()
        return Frame(head.decode(errors="replace"), body)

    def wait(self, timeout_sec: float = inf) -> None:
        """Sleep until `receive_frame` can make progress, or `timeout_sec` is over."""
        poller = select.poll()
        poller.register(self._socket, self.events)
        poller.poll(None if timeout_sec == inf else max(0.0, timeout_sec) * 1000)

    def close(self) -> None:
        self._socket.close()

    def flush(self) -> None:
        """Send as much as the socket accepts without blocking."""
        # `_fill` reports a closed peer as the end of the stream, after reading its last bytes.
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._outgoing:
                count = self._socket.send(memoryview(self._outgoing)[:_CHUNK_BYTES])
                del self._outgoing[:count]

    def _fill(self) -> bool:
        """Read the received bytes of one frame; return True at the end of the stream."""
        try:
            while missing_bytes := self._missing_bytes():
                if not (chunk := self._socket.recv(min(missing_bytes, _CHUNK_BYTES))):
                    return True
                self._incoming += chunk
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        return False

    def _missing_bytes(self) -> int:
        if len(self._incoming) < _HEADER.size:
            return _HEADER.size - len(self._incoming)
        (length,) = _HEADER.unpack_from(self._incoming)
        if length > self._limit_bytes:
            raise FrameTooLarge
        return int(_HEADER.size + length - len(self._incoming))
