"""The first and the last words of a session, from the server's side of TVM's RPC."""

import logging
import socket
import struct
from typing import Final

from workers.device.tracker_client import RPC_MAGIC, RPC_MISMATCH, receive_exactly

log = logging.getLogger(__name__)

TIMEOUT_SEC = 5.0
# What the server answers in the place of a session that died.
DEATH_NOTICE: Final = "SessionDied:"
_INT = struct.Struct("<i")
_NAME_LIMIT_BYTES = 1024


def welcome(connection: socket.socket, key: str, match_key: str) -> bool:
    """Whether this client may have a session: only the one that the tracker gave our current key to."""
    try:
        return bool(match_key) and _greet(connection, key, match_key)
    except (OSError, UnicodeDecodeError) as error:
        log.warning("a client did not finish its greeting: %s", error)
        return False


def _greet(connection: socket.socket, key: str, match_key: str) -> bool:
    connection.settimeout(TIMEOUT_SEC)
    magic, size = struct.unpack("<ii", receive_exactly(connection, 2 * _INT.size))
    if magic != RPC_MAGIC or not 0 < size < _NAME_LIMIT_BYTES:
        return False
    words = receive_exactly(connection, size).decode().split()
    if not words or words[0] != f"client:{match_key}":
        connection.sendall(_INT.pack(RPC_MISMATCH))
        return False
    name = f"server:{key}".encode()
    connection.sendall(_INT.pack(RPC_MAGIC) + _INT.pack(len(name)) + name)
    connection.settimeout(None)
    _notice_dead_peer(connection)
    return True


def _notice_dead_peer(connection: socket.socket) -> None:
    """Have the kernel end the stream when the client's host disappears."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
