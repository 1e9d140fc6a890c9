"""Limits the open connections of this process: in total, and for each client address."""

import logging
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final, Protocol

log = logging.getLogger(__name__)
LOG_SEC: Final = 60.0  # least time between two warnings
LARGEST_RESERVE: Final = 4096  # files
PREFIX_BITS: Final = 64  # the part of an IPv6 address that a provider gives to one customer


class Connection(Protocol):
    """A client's connection that can be ended at once."""

    def cut(self) -> None: ...


@dataclass(eq=False, slots=True)
class _Group:
    """Open connections; `waiting` has those that wait for their client, the longest first."""

    open: set[Connection] = field(default_factory=set)
    waiting: dict[Connection, None] = field(default_factory=dict)


class ConnectionLimits:
    """Ends the connection that has waited longest for its client when there are too many.

    A connection waits for its client when it has no request in progress, or when the client
    does not read the response. Proxies' addresses are not limited: they have many clients.
    """

    def __init__(self, most: int, most_per_address: int, is_proxy: Callable[[str], bool]) -> None:
        self._most = most
        self._most_per_address = min(most_per_address or most, max(1, most // 2))
        self._is_proxy = is_proxy
        self._all = _Group()
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)
        self._address_of: dict[Connection, str] = {}
        self._logged_sec = -LOG_SEC

    def add(self, connection: Connection, address: str) -> None:
        """Add a new connection, which waits; end another one if there are too many."""
        self._address_of[connection] = key = _limited_address(address)
        group = self._groups[key]
        for each in (self._all, group):
            each.open.add(connection)
            each.waiting[connection] = None
        if len(group.open) > self._most_per_address and not self._is_proxy(address):
            self._end_one(group, f"{address} has more than {self._most_per_address:,} connections")
        elif len(self._all.open) > self._most:
            self._end_one(self._all, f"there are more than {self._most:,} connections")

    def set_waiting(self, connection: Connection, is_waiting: bool) -> None:
        """Record whether a connection waits for its client; it may have waited before."""
        if connection in self._address_of and is_waiting != (connection in self._all.waiting):
            for each in (self._all, self._groups[self._address_of[connection]]):
                if is_waiting:
                    each.waiting[connection] = None
                else:
                    del each.waiting[connection]

    def remove(self, connection: Connection) -> None:
        """Forget a connection that has ended; do nothing if it is unknown."""
        if (key := self._address_of.pop(connection, None)) is None:
            return
        for each in (self._all, self._groups[key]):
            each.open.discard(connection)
            each.waiting.pop(connection, None)
        if not self._groups[key].open:
            del self._groups[key]

    def _end_one(self, group: _Group, reason: str) -> None:
        longest = next(iter(group.waiting))  # the new connection waits, so there is one
        self.remove(longest)
        longest.cut()
        if (now_sec := time.monotonic()) - self._logged_sec >= LOG_SEC:
            self._logged_sec = now_sec
            log.warning("%s: those that wait longest for their clients are closed", reason)


def _limited_address(address: str) -> str:
    """Return the address, or an IPv6 address's network, whose connections count together."""
    try:
        parsed = ip_address(address)
    except ValueError:  # a socket without an address
        return ""
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or ip_network((parsed, PREFIX_BITS), strict=False))


def raise_file_limit(connections: int) -> None:
    """Raise this process's limit of open files for so many connections, if the host allows."""
    soft, hard = (_as_number(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    if soft < (limit := min(hard, connections + LARGEST_RESERVE)):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def split_file_limit(connections: int) -> tuple[int, int]:
    """Return how many connections may be open and how many the kernel may queue.

    Other files get half of this process's limit, but at most LARGEST_RESERVE. A quarter stays
    free while queued connections are accepted, which happens in one go.
    """
    limit = _as_number(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    reserve = min(limit // 2, LARGEST_RESERVE)
    return min(connections, limit - reserve), reserve // 2


def _as_number(limit: int) -> int:
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
