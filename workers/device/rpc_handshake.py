"""The first and the last words of a session, from the server's side of TVM's RPC."""

import hmac
import logging
import socket
import struct
from typing import Final

from mallorn.core.fleet_key import FleetKey
from workers.device.tracker_client import RPC_MAGIC, RPC_MISMATCH

log = logging.getLogger(__name__)

TIMEOUT_SEC = 5.0
# What the server answers in the place of a session that died.
DEATH_NOTICE: Final = "SessionDied:"
# And how it goes on where the session waited for its client to the last.
UNHEARD: Final = " while it waited for its client"
_INT = struct.Struct("<i")


def ticket_of(match_key: str, fleet: FleetKey) -> str:
    """What a client shows that was given a device's match key; who overheard that alone cannot make it."""
    return fleet.proof("client", match_key) if fleet else match_key


def opens(ticket: str, match_key: str, fleet: FleetKey) -> bool:
    """Whether a client may have the session of this match key."""
    if fleet:
        return fleet.proves(ticket, "client", match_key)
    return hmac.compare_digest(ticket.encode(), match_key.encode())


def welcome(connection: socket.socket, said: str, key: str, match_key: str, fleet: FleetKey) -> bool:
    """Answer what a client said: only the one that the tracker gave our current key to has a session."""
    connection.settimeout(TIMEOUT_SEC)
    try:
        return bool(match_key) and _greet(connection, said.split(), key, match_key, fleet)
    except OSError as error:
        log.warning("a client did not wait for its answer: %s", error)
        return False


def _greet(connection: socket.socket, words: list[str], key: str, match_key: str, fleet: FleetKey) -> bool:
    role, _, ticket = words[0].partition(":") if words else ("", "", "")
    if role != "client" or not opens(ticket, match_key, fleet):
        log.warning("%s showed no ticket of ours and gets no session", connection.getpeername())
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
