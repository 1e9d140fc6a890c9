"""Checks of HOST:PORT addresses: whether they are local or free, and which user listens."""

import errno
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Container
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from mallorn.core.errors import InvalidRequest, Unavailable

LAST_PORT = 65535
ROOT_UID: Final = 0


def host_and_port(text: str) -> tuple[str, int]:
    """Split HOST:PORT. Raises InvalidRequest if the text has another form."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > LAST_PORT:
        raise InvalidRequest(f"{text!r} is not HOST:PORT", hint="write an address like 127.0.0.1:9190")
    return host, int(port)


def check_binding(host: str, has_keys: bool) -> None:
    """Raise InvalidRequest if other machines could reach `host` and no key is required."""
    if not has_keys and not is_loopback(host):
        raise InvalidRequest(
            f"{host} can be reached from other machines and no API key is set",
            hint="mallorn keys create NAME --here   (or set MALLORN_API_KEYS, or --host 127.0.0.1)",
        )


def is_loopback(host: str) -> bool:
    """Return whether this host name or address can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_PRIVATE_IPV4: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16")
_PRIVATE_NETWORKS: Final = (*map(ipaddress.ip_network, (*_PRIVATE_IPV4, "fc00::/7", "fe80::/10")),)


def is_on_private_network(address: str) -> bool:
    """Return whether an IP address is of RFC 1918, link-local, or unique local in IPv6."""
    ip = ipaddress.ip_address(address)
    return any(ip in network for network in _PRIVATE_NETWORKS)


def free_port(host: str = "127.0.0.1", excluded: Container[int] = ()) -> int:
    """Return a port on which nothing listens now and that is not in `excluded`."""
    while True:
        with socket.create_server((host, 0)) as server:
            port = int(server.getsockname()[1])
        if port not in excluded:
            return port


def check_or_choose_port(host: str, port: int) -> int:
    """Return `port`, or a free port for 0. Raises InvalidRequest if `port` cannot be bound."""
    if port == 0:
        return free_port(host)
    try:
        socket.create_server((host, port)).close()
    except PermissionError:
        raise InvalidRequest(f"port {port} needs root", hint="--port 8000") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} on {host} is taken by another program"
            raise InvalidRequest(message, hint="--port 0   (takes a free port)") from None
        raise InvalidRequest(f"cannot bind {host}: {error.strerror}", hint="--host 127.0.0.1") from None
    return port


class NotYours(Unavailable):
    """The service at the default address belongs to another user; name its URL to use it."""


def check_own_service(url: str, *owners: int) -> str:
    """Return a local service's URL. Raises NotYours if a user not in `owners` runs it."""
    parts = urlsplit(url)
    uid = listener_uid(parts.port or 80, parts.hostname or "")
    if uid is None or uid in (os.getuid(), *owners):
        return url
    hint = (
        f"mallorn up --port 0   (or, with a key from its owner: export MALLORN_URL={url} MALLORN_API_KEY=KEY)"
    )
    raise NotYours(f"the service at {url} belongs to {user_name(uid)}", hint=hint)


Address = tuple[str, int]
End = tuple[int, int]  # user id of a socket's creator, and its inode
LISTENS: Final = "0A"
ESTABLISHED: Final = 1
LOOKS: Final = 4
SOCK_DIAG: Final = 4  # NETLINK_SOCK_DIAG
SOCK_DIAG_BY_FAMILY: Final = 20
REQUEST: Final = 1  # NLM_F_REQUEST
ANY: Final = 0xFFFFFFFF  # state, cookie
HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, number, sender
QUERY: Final = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
ADDRESSES: Final = struct.Struct("!HH16s16s")  # both ports and both addresses of a socket
PLACE: Final = struct.Struct("=III")  # a socket's interface and its cookie
ANSWER: Final = struct.Struct("=BBBB48xIIIII")  # family, state, timer, retries; expiry, queues, user, inode


def listener_uid(port: int, host: str = "127.0.0.1") -> int | None:
    """Return the id of the user who listens at a port of this machine; None if unknown."""
    hosts = _proc_net_hosts("127.0.0.1")
    with suppress(ValueError):  # a name, such as localhost
        hosts = _proc_net_hosts(host)
    # Addresses that receive connections to the host, the most specific first.
    all_hosts = _proc_net_hosts("0.0.0.0" if len(hosts) == 2 else "::")  # noqa: S104
    pairs = zip(hosts, all_hosts, strict=True)
    addresses = *chain.from_iterable(pairs), *_proc_net_hosts("::")
    uids = {row[1]: int(row[7]) for row in read_proc_net_rows(f" {LISTENS} ")}
    ends = (f"{address}:{port:04X}" for address in addresses)
    return next((uids[end] for end in ends if end in uids), None)


def connected_uid(connection: socket.socket) -> int | None:
    """Return the id of the user at a connection's other end; None if unknown or ended."""
    if sys.platform != "linux":
        return None
    with suppress(OSError):
        own_address = _unmap_ipv4(connection.getsockname())
        address = _unmap_ipv4(connection.getpeername())
        end = None
        for _ in range(LOOKS):
            # The kernel reports root for a closing socket; two equal answers: it is open.
            previous_end, end = end, _find_socket_end(address, own_address)
            if end is not None and end == previous_end:
                # Raises if the connection has ended: another one may use its addresses.
                connection.getpeername()
                return end[0]
    return None


def is_from_this_user(connection: socket.socket) -> bool:
    """Return whether this user or root made the other end of a connection."""
    return connected_uid(connection) in (os.getuid(), ROOT_UID)


def user_name(uid: int) -> str:
    """Return a user's name for messages, such as `user ada`."""
    import pwd  # missing on some systems that the client supports

    with suppress(KeyError):
        return f"user {pwd.getpwuid(uid).pw_name}"
    return f"user {uid}"


def _find_socket_end(local: Address, remote: Address) -> End | None:
    """Return the socket between two addresses; None if there is none or it was closed."""
    with suppress(OSError):  # a kernel without NETLINK_SOCK_DIAG, as gVisor's, still has /proc
        if (end := _query_socket_by_netlink(local, remote)) is not None:
            return end
    places = zip(_proc_net_hosts(local[0]), _proc_net_hosts(remote[0]), strict=True)
    for local_host, remote_host in places:
        for row in read_proc_net_rows(
            f" {local_host}:{local[1]:04X} {remote_host}:{remote[1]:04X} {ESTABLISHED:02X} "
        ):
            uid, inode = int(row[7]), int(row[9])
            return (uid, inode) if inode else None  # its owner closed one without an inode
    return None


def _query_socket_by_netlink(local: Address, remote: Address) -> End | None:
    """Query one socket by netlink; reading all sockets from /proc takes milliseconds."""
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    hosts = [socket.inet_pton(family, host) for host, _ in (local, remote)]
    query = (
        QUERY.pack(family, socket.IPPROTO_TCP, 0, 0, ANY)
        + ADDRESSES.pack(local[1], remote[1], *hosts)
        + PLACE.pack(0, ANY, ANY)
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, SOCK_DIAG) as kernel:
        kernel.send(HEADER.pack(HEADER.size + len(query), SOCK_DIAG_BY_FAMILY, REQUEST, 1, 0) + query)
        answer = kernel.recv(8192)
    if HEADER.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY:
        return None
    _, state, *_, uid, inode = ANSWER.unpack_from(answer, HEADER.size)
    return (uid, inode) if inode and state == ESTABLISHED else None


def read_proc_net_rows(text: str) -> list[list[str]]:
    rows = []
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # not Linux, or no IPv6
            lines = Path("/proc/self/net", table).read_text().splitlines()[1:]
            rows += [line.split() for line in lines if text in line]
    return rows


def _unmap_ipv4(address: tuple[Any, ...]) -> Address:
    host = ipaddress.ip_address(address[0])
    return str(getattr(host, "ipv4_mapped", None) or host), int(address[1])


def _proc_net_hosts(host: str) -> tuple[str, ...]:
    address = ipaddress.ip_address(host)
    if address.version == 6:
        return (_proc_net_hex(address.packed),)
    return _proc_net_hex(address.packed), _proc_net_hex(ipaddress.ip_address(f"::ffff:{address}").packed)


def _proc_net_hex(address: bytes) -> str:
    groups = (address[start : start + 4] for start in range(0, len(address), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in groups)
