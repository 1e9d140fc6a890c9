"""The first and the last words of a session of TVM's RPC."""

import hmac
import logging
import socket
import struct
from typing import Final

from mallorn.core.fleet_key import FleetKey
from mallorn.core.host_id import host_id
from workers.device.tracker_client import RPC_MAGIC, RPC_MISMATCH, Address, receive_exactly
from workers.host.core_lock import lock_identity

log = logging.getLogger(__name__)

TIMEOUT_SEC = 5.0
# What the server answers in the place of a session that died.
DEATH_NOTICE: Final = "SessionDied:"
# And how it goes on where the session waited for its client to the last.
UNHEARD: Final = " while it waited for its client"
# What a session answers that cannot begin, before it says why.
NO_SESSION: Final = "NoSession:"
#: How a client names its host and its locks, behind its ticket.
_LOCKS: Final = "-locks="
_INT = struct.Struct("<i")
_NAME_LIMIT_BYTES: Final = 1024


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
    send_greeting(connection, f"server:{key}")
    connection.settimeout(None)
    notice_dead_peer(connection)
    return True


def has_other_locks(said: str, locks: str) -> bool:
    """Return whether a client of this host says that it holds other locks than `locks`."""
    for word in said.split():
        if word.startswith(_LOCKS):
            host, _, of_client = word.removeprefix(_LOCKS).partition(":")
            return host == host_id() and bool(of_client and locks) and of_client != locks
    return False  # a client of an older version


def ask_for_session(address: Address, match_key: str, fleet: FleetKey, timeout_sec: float) -> socket.socket:
    """Connect to a device as the client whom the tracker gave its match key to. Raises OSError."""
    connection = socket.create_connection(address, timeout_sec)
    try:
        locks = f"{_LOCKS}{host_id()}:{lock_identity()}"
        send_greeting(connection, f"client:{ticket_of(match_key, fleet)} {locks}")
        read_greeting(connection)
    except OSError:
        connection.close()
        raise
    connection.settimeout(None)
    return connection


def send_greeting(connection: socket.socket, words: str) -> None:
    """Send what opens a connection, of either side."""
    name = words.encode()
    connection.sendall(_INT.pack(RPC_MAGIC) + _INT.pack(len(name)) + name)


def read_greeting(connection: socket.socket) -> str:
    """Return the words of a peer's greeting. Raises OSError for what is none."""
    if _INT.unpack(receive_exactly(connection, _INT.size))[0] != RPC_MAGIC:
        raise ConnectionError("it gives no session")
    (size,) = _INT.unpack(receive_exactly(connection, _INT.size))
    if not 0 < size < _NAME_LIMIT_BYTES:
        raise ConnectionError("it speaks another protocol")
    return receive_exactly(connection, size).decode(errors="replace")


def notice_dead_peer(connection: socket.socket) -> None:
    """Have the kernel end the stream when the peer's host disappears."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
