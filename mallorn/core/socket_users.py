"""Asks the kernel which user of this machine holds a socket."""

import ipaddress
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

Address = tuple[str, int]
End = tuple[int, int]  # the user who made a socket, and its inode
LISTENS: Final = "0A"
ESTABLISHED: Final = 1
LOOKS: Final = 3
SOCK_DIAG: Final = 4  # NETLINK_SOCK_DIAG
SOCK_DIAG_BY_FAMILY: Final = 20
REQUEST: Final = 1  # NLM_F_REQUEST
ANY: Final = 0xFFFFFFFF  # state, cookie
HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, number, sender
QUERY: Final = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
ADDRESSES: Final = struct.Struct("!HH16s16s")  # both ports and both addresses of a socket
PLACE: Final = struct.Struct("=III")  # its interface and its cookie
ANSWER: Final = struct.Struct("=BBBB48xIIIII")  # family, state, timer, retries; expiry, queues, user, inode


def listener_uid(port: int) -> int | None:
    """Return the user who listens at this port of 127.0.0.1; None if the kernel shows no listener."""
    listening = {row[1]: int(row[7]) for row in _rows(f" {LISTENS} ")}
    (one, mapped_one), (all_v4, mapped_all) = _written("127.0.0.1"), _written("0.0.0.0")  # noqa: S104
    # What 127.0.0.1 reaches, the most precise first.
    for address in (one, all_v4, mapped_one, mapped_all, *_written("::")):
        if (found := listening.get(f"{address}:{port:04X}")) is not None:
            return found
    return None


def peer_uid(ours: Address, theirs: Address) -> int | None:
    """Return the user who made the other end of a connection within this machine; None if that is unknown.

    The caller has to check afterwards that its own end is connected still: only until it is not do both
    addresses belong to this connection and to no later one.
    """
    if sys.platform != "linux":
        return None
    ours, theirs = _plain(ours), _plain(theirs)
    seen = _open_end(theirs, ours)
    for _ in range(LOOKS):
        # A socket that is being closed is root's, says the kernel: two equal answers are of an open one.
        before, seen = seen, _open_end(theirs, ours)
        if seen is not None and seen == before:
            return seen[0]
    return None


def user_name(uid: int) -> str:
    """Return how messages call a user."""
    import pwd  # which not every system has on which the client runs

    with suppress(KeyError):
        return f"user {pwd.getpwuid(uid).pw_name}"
    return f"user {uid}"


def _open_end(local: Address, remote: Address) -> End | None:
    """Return the established socket between two addresses; None if there is none, or its holder closed it."""
    with suppress(OSError):  # a kernel without socket diagnosis, as gVisor's, lists its sockets all the same
        if (found := _diagnosed(local, remote)) is not None:
            return found
    places = zip(_written(local[0]), _written(remote[0]), strict=True)
    for one, other in places:
        for row in _rows(f" {one}:{local[1]:04X} {other}:{remote[1]:04X} {ESTABLISHED:02X} "):
            return _held(int(row[7]), int(row[9]))
    return None


def _diagnosed(local: Address, remote: Address) -> End | None:
    """Ask the kernel for this one socket: /proc lists all of them, which takes milliseconds."""
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    packed = [socket.inet_pton(family, host) for host, _ in (local, remote)]
    wanted = (
        QUERY.pack(family, socket.IPPROTO_TCP, 0, 0, ANY)
        + ADDRESSES.pack(local[1], remote[1], *packed)
        + PLACE.pack(0, ANY, ANY)
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, SOCK_DIAG) as kernel:
        kernel.send(HEADER.pack(HEADER.size + len(wanted), SOCK_DIAG_BY_FAMILY, REQUEST, 1, 0) + wanted)
        answer = kernel.recv(8192)
    if HEADER.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY:
        return None
    _, state, *_, uid, inode = ANSWER.unpack_from(answer, HEADER.size)
    return _held(uid, inode) if state == ESTABLISHED else None


def _held(uid: int, inode: int) -> End | None:
    return (uid, inode) if inode else None  # one without an inode has no holder any more


def _rows(words: str) -> list[list[str]]:
    """Return the kernel's rows of TCP sockets in which these words stand, split at spaces."""
    rows = []
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # of a system that is not Linux, or has no IPv6
            lines = Path("/proc/self/net", table).read_text().splitlines()[1:]
            rows += [line.split() for line in lines if words in line]
    return rows


def _plain(address: Address) -> Address:
    """Return an address without the IPv6 writing of an IPv4 one."""
    host = ipaddress.ip_address(address[0])
    return str(getattr(host, "ipv4_mapped", None) or host), address[1]


def _written(host: str) -> tuple[str, ...]:
    """Return a host as the kernel's tables write it; one of IPv4 stands in that of IPv6 as well."""
    address = ipaddress.ip_address(host)
    if address.version == 6:
        return (_words(address.packed),)
    return _words(address.packed), _words(ipaddress.ip_address(f"::ffff:{address}").packed)


def _words(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
