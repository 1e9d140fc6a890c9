"""Runs the coordinator as a uvicorn server, which limits its open connections."""

import resource
import socket
import struct
from asyncio import TimerHandle, Transport
from collections import Counter
from collections.abc import Callable
from functools import partial
from ipaddress import IPv6Address, IPv6Network
from threading import Event
from types import FrameType
from typing import Any, Final, Protocol

import uvicorn
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from mallorn.core.address_checks import check_binding
from mallorn.core.settings import Settings
from mallorn.db.repositories.access_control import has_api_keys
from mallorn.services.coordinator.app import create_app
from mallorn.services.coordinator.web.artifact_store import Store
from mallorn.services.coordinator.web.authenticator import LocalPeer
from mallorn.services.coordinator.web.caller_dependencies import PEER
from mallorn.services.coordinator.web.request_limits import PIECE_BYTES

# Time for requests in progress when the process is asked to stop.
SHUTDOWN_SEC: Final = 5
# Longer than clients keep idle connections (httpx: 5 s): no request meets a closed one.
KEEP_ALIVE_SEC: Final = 75
#: With this socket option, the kernel drops unsent data when the socket is closed.
DROP_UNSENT: Final = struct.pack("ii", 1, 0)
#: Limit for an incomplete request head; RequestLimits refuses complete ones with a message.
LARGEST_HEAD: Final = 64 * 1024
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


class CoordinatorHttp(H11Protocol):
    """HTTP connection that adds its peer process to each request; clients cannot forge it.

    It ends if no request head arrives within `wait_sec`, or if the client does not read a
    piece of the response in that time; uvicorn itself would wait for ever.
    """

    def __init__(self, limits: ConnectionLimits, wait_sec: float, **protocol_args: Any) -> None:
        super().__init__(**protocol_args)
        self._limits = limits
        self._wait_sec = wait_sec
        self._timers: dict[Callable[[], None], TimerHandle] = {}

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE_BYTES)
        transport.set_write_buffer_limits(0)  # call `pause_writing` for any unsent byte
        self.app_state = {**self.app_state, PEER: LocalPeer(connection)}
        self._limits.add(self, self.client[0] if self.client else "")
        self._update_waits()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.remove(self)
        for timer in self._timers.values():
            timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_waits()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_waits()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._update_waits()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._update_waits()

    def cut(self) -> None:
        """End the connection at once, and drop what the client has not read."""
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, DROP_UNSENT)
        self.transport.abort()

    def _update_waits(self) -> None:
        is_served = self.cycle is not None and not self.cycle.response_complete
        is_head_due = self.cycle is None or bool(self.conn.trailing_data[0])  # no request yet, or a part
        self._limits.set_waiting(self, self.flow.write_paused or not is_served)
        self._limit_wait(is_head_due and not is_served, self.timeout_keep_alive_handler)
        self._limit_wait(self.flow.write_paused, self.cut)

    def _limit_wait(self, is_waiting: bool, end: Callable[[], None]) -> None:
        """Let `end` be called unless the connection stops waiting within `wait_sec`."""
        if is_waiting and end not in self._timers:
            self._timers[end] = self.loop.call_later(self._wait_sec, end)
        elif not is_waiting and end in self._timers:
            self._timers.pop(end).cancel()


class Server(uvicorn.Server):
    """Server that ends event streams when it stops; clients reconnect to its successor."""

    def __init__(self, config: uvicorn.Config, stopping: Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stopping.set()
        super().handle_exit(sig, frame)


def serve(settings: Settings) -> None:
    """Serve until stopped. Raises InvalidRequest for a public address without API keys."""
    check_binding(
        settings.host, bool(settings.api_keys or settings.oidc_issuer) or has_api_keys(settings.database_url)
    )
    Store(settings.artifacts).remove_stale_uploads()
    app = create_app(settings)
    Server(server_config(app, settings), app.state.parts.stopping).run()


def server_config(app: ASGIApp, settings: Settings, shutdown_sec: int = SHUTDOWN_SEC) -> uvicorn.Config:
    connections, backlog = reserve_files(settings.max_connections)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        backlog=backlog,
        loop="asyncio",  # its sockets ask the kernel again whether they are connected
        timeout_graceful_shutdown=shutdown_sec,
        timeout_keep_alive=KEEP_ALIVE_SEC,
        server_header=False,
        ws="none",
        h11_max_incomplete_event_size=LARGEST_HEAD,
        log_config=None,  # uvicorn logs through this process's handlers
    )
    proxies = ProxyHeadersMiddleware(app, config.forwarded_allow_ips).trusted_hosts  # type: ignore[arg-type]
    limit_per_address = settings.max_connections_per_address
    limits = ConnectionLimits(connections, limit_per_address, proxies.__contains__)
    config.http = partial(CoordinatorHttp, limits, settings.client_wait_sec)  # type: ignore[assignment]
    return config


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
