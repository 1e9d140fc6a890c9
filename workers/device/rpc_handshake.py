"""The greetings that open a TVM RPC session, and markers in the errors that end one."""

import hmac
import logging
import socket
import struct
from typing import Final

from mallorn.core.address_checks import is_from_this_user
from mallorn.core.fleet_key import FleetKey
from mallorn.core.host_id import host_id
from mallorn.workers.device.tracker_client import RPC_MAGIC, RPC_MISMATCH, Address, receive_exactly
from mallorn.workers.host.host_lock import lock_identity

log = logging.getLogger(__name__)

TIMEOUT_SEC = 5.0
# Prefix of the error that a device sends for a session that died.
DEATH_NOTICE: Final = "SessionDied:"
# Suffix of that error if the session was waiting for its client when it died.
UNHEARD: Final = " while it waited for its client"
# Prefix of the error of a session that cannot begin; the reason follows.
NO_SESSION: Final = "NoSession:"
#: Prefix of the word in a client's greeting that names its host and its core locks.
_LOCKS: Final = "-locks="
_INT = struct.Struct("<i")
_NAME_LIMIT_BYTES: Final = 1024


def answer_greeting(
    connection: socket.socket, greeting: str, key: str, match_key: str, fleet: FleetKey
) -> bool:
    """Answer a greeting; return whether its ticket is valid and a session may start."""
    if not match_key:
        return False
    connection.settimeout(TIMEOUT_SEC)
    words = greeting.split()
    role, _, ticket = words[0].partition(":") if words else ("", "", "")
    if fleet:
        is_valid_ticket = fleet.is_valid_signature(ticket, "client", match_key)
    else:
        is_valid_ticket = hmac.compare_digest(ticket.encode(), match_key.encode())
        is_valid_ticket &= is_from_this_user(connection)  # others may know the key
    try:
        if role != "client" or not is_valid_ticket:
            log.warning("%s sent no valid ticket and gets no session", connection.getpeername())
            connection.sendall(_INT.pack(RPC_MISMATCH))
            return False
        send_greeting(connection, f"server:{key}")
        connection.settimeout(None)
        enable_keepalive(connection)
    except OSError as error:
        log.warning("a client closed its connection before it got an answer: %s", error)
        return False
    return True


def host_and_locks(greeting: str) -> tuple[str, str]:
    """Return the client's host id and core-lock identity; empty from older versions."""
    for word in greeting.split():
        if word.startswith(_LOCKS):
            host, _, locks = word.removeprefix(_LOCKS).partition(":")
            return host, locks
    return "", ""


def open_session(address: Address, match_key: str, fleet: FleetKey, timeout_sec: float) -> socket.socket:
    """Open a device's session with its match key; return the connection. Raises OSError."""
    connection = socket.create_connection(address, timeout_sec)
    try:
        locks = f"{_LOCKS}{host_id()}:{lock_identity()}"
        # With a fleet key, eavesdroppers who know the match key cannot open the session.
        ticket = fleet.sign("client", match_key) if fleet else match_key
        send_greeting(connection, f"client:{ticket} {locks}")
        read_greeting(connection)
    except OSError:
        connection.close()
        raise
    connection.settimeout(None)
    return connection


def send_greeting(connection: socket.socket, words: str) -> None:
    """Send the greeting that opens a connection; both sides use the same format."""
    name = words.encode()
    connection.sendall(_INT.pack(RPC_MAGIC) + _INT.pack(len(name)) + name)


def read_greeting(connection: socket.socket) -> str:
    """Return the words of a peer's greeting. Raises OSError without a valid one."""
    if _INT.unpack(receive_exactly(connection, _INT.size))[0] != RPC_MAGIC:
        raise ConnectionError("the device refused the session")
    (size,) = _INT.unpack(receive_exactly(connection, _INT.size))
    if not 0 < size < _NAME_LIMIT_BYTES:
        raise ConnectionError("the other side does not speak TVM RPC")
    return receive_exactly(connection, size).decode(errors="replace")


def enable_keepalive(connection: socket.socket) -> None:
    """Enable TCP keepalive: the kernel ends the stream if the peer's host disappears."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
