"""Limits the open connections of this process: in total, and for each client address."""

import resource
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network
from typing import Final, Protocol

LARGEST_RESERVE: Final = 4096  # files
PREFIX_BITS: Final = 64  # the part of an IPv6 address that a provider gives to one customer


class ClientConnection(Protocol):
    """A client's connection that can be ended at once."""

    def cut(self) -> None: ...


class ConnectionLimits:
    """Ends the connection that has waited longest for its client when there are too many.

    A connection waits for its client when it has no request in progress, or when the client
    does not read the response. Proxies' addresses are not limited: they have many clients.
    """

    def __init__(self, limit: int, limit_per_address: int, is_proxy: Callable[[str], bool]) -> None:
        self._limit = limit
        self._limit_per_address = min(limit_per_address or limit, max(1, limit // 2))
        self._is_proxy = is_proxy
        self._addresses: dict[ClientConnection, str] = {}
        self.counts: Counter[str] = Counter()  # open connections by address
        self._waiting: dict[ClientConnection, None] = {}  # ordered by when they began to wait

    def add(self, connection: ClientConnection, address: str) -> None:
        """Add a new connection, which waits; end another one if there are too many."""
        key = address
        if ":" in address:  # the connections of an IPv6 network count together
            ipv6 = IPv6Address(address)
            key = str(ipv6.ipv4_mapped or IPv6Network((ipv6, PREFIX_BITS), strict=False))
        self._addresses[connection] = key
        self.counts[key] += 1
        self._waiting[connection] = None
        # The new connection waits, so that there is one to end.
        if self.counts[key] > self._limit_per_address and not self._is_proxy(address):
            self._end(next(waiting for waiting in self._waiting if self._addresses[waiting] == key))
        elif len(self._addresses) > self._limit:
            self._end(next(iter(self._waiting)))

    def set_waiting(self, connection: ClientConnection, is_waiting: bool) -> None:
        """Record whether a connection waits for its client; it may have waited before."""
        if not is_waiting:
            self._waiting.pop(connection, None)
        elif connection in self._addresses:
            self._waiting.setdefault(connection)

    def remove(self, connection: ClientConnection) -> None:
        """Forget a connection that has ended; do nothing if it is unknown."""
        self._waiting.pop(connection, None)
        if (address := self._addresses.pop(connection, None)) is not None:
            self.counts[address] -= 1
            if not self.counts[address]:
                del self.counts[address]

    def _end(self, connection: ClientConnection) -> None:
        self.remove(connection)
        connection.cut()


def reserve_files(connections: int) -> tuple[int, int]:
    """Raise this process's limit of open files for so many connections, if the host allows.

    Return how many connections may be open and how many the kernel may queue. Other files
    get half of the limit, but at most LARGEST_RESERVE. A quarter stays free while queued
    connections are accepted, which happens in one go.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted_files = connections + LARGEST_RESERVE
    limit = min(hard, wanted_files) if hard != resource.RLIM_INFINITY else wanted_files
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    reserve = min(limit // 2, LARGEST_RESERVE)
    return min(connections, limit - reserve), reserve // 2
