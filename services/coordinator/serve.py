"""Runs the coordinator as a uvicorn server."""

import socket
import struct
from asyncio import TimerHandle, Transport
from functools import partial
from threading import Event
from types import FrameType
from typing import Any, Final

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
from mallorn.services.coordinator.web.connection_limits import (
    ConnectionLimits,
    raise_file_limit,
    split_file_limit,
)
from mallorn.services.coordinator.web.request_limits import PIECE_BYTES, SLOWEST_BYTES_PER_SEC

# Time for requests in progress when the process is asked to stop.
SHUTDOWN_SEC: Final = 5
# Longer than clients keep idle connections (httpx: 5 s): no request meets a closed one.
KEEP_ALIVE_SEC: Final = 75
#: With this socket option, the kernel drops unsent data when the socket is closed.
DROP_UNSENT: Final = struct.pack("ii", 1, 0)
#: Limit for an incomplete request head; RequestLimits refuses complete ones with a message.
LARGEST_HEAD: Final = 64 * 1024


class CoordinatorHttp(H11Protocol):
    """HTTP connection that adds its peer process to each request; clients cannot forge it.

    It ends if no request head arrives within `wait_sec`, or if the client reads less of the
    response in that time than SLOWEST_BYTES_PER_SEC; uvicorn itself would wait for ever.
    """

    _head_timer: TimerHandle | None = None
    _write_timer: TimerHandle | None = None

    def __init__(self, limits: ConnectionLimits, wait_sec: float, **protocol_args: Any) -> None:
        super().__init__(**protocol_args)
        self._limits = limits
        self._wait_sec = wait_sec

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE_BYTES)  # the kernel has 4 MiB else
        transport.set_write_buffer_limits(0)  # call `pause_writing` for any byte that is not sent
        self.app_state = {**self.app_state, PEER: LocalPeer(connection)}
        self._limits.add(self, self.client[0] if self.client else "")
        self._update_head_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.remove(self)
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_head_timeout()
        self._update_limits()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.trailing_data[0]:  # the beginning of another request
            self._update_head_timeout()
        self._update_limits()

    def pause_writing(self) -> None:
        """Wait for the client to read what was written, and cut a client that reads too slowly."""
        super().pause_writing()
        self._expect_reading()
        self._update_limits()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self._update_limits()

    def _expect_reading(self) -> None:
        unsent_bytes = self.transport.get_write_buffer_size()
        most_bytes = max(0.0, unsent_bytes - self._wait_sec * SLOWEST_BYTES_PER_SEC)
        self._write_timer = self.loop.call_later(self._wait_sec, self._check_reading, most_bytes)

    def _check_reading(self, most_bytes: float) -> None:
        if self.transport.get_write_buffer_size() > most_bytes:
            self.cut()
        else:
            self._expect_reading()

    def cut(self) -> None:
        """End the connection at once, and drop what the client has not read."""
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, DROP_UNSENT)
        self.transport.abort()

    @property
    def _is_served(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _update_limits(self) -> None:
        self._limits.set_waiting(self, self.flow.write_paused or not self._is_served)

    def _update_head_timeout(self) -> None:
        if self._is_served and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        elif not self._is_served and self._head_timer is None:
            self._head_timer = self.loop.call_later(self._wait_sec, self.timeout_keep_alive_handler)


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
    raise_file_limit(settings.max_connections)
    app = create_app(settings)
    Server(server_config(app, settings), app.state.parts.stopping).run()


def server_config(app: ASGIApp, settings: Settings, shutdown_sec: int = SHUTDOWN_SEC) -> uvicorn.Config:
    """Return the uvicorn configuration of a coordinator."""
    connections, backlog = split_file_limit(settings.max_connections)
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
    limits = ConnectionLimits(connections, settings.max_connections_per_address, proxies.__contains__)
    config.http = partial(CoordinatorHttp, limits, settings.client_wait_sec)  # type: ignore[assignment]
    return config
