"""Runs the coordinator as a uvicorn server."""

import socket
import struct
from asyncio import TimerHandle, Transport
from collections.abc import Callable
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
from mallorn.services.coordinator.web.connection_limits import ConnectionLimits, reserve_files
from mallorn.services.coordinator.web.request_limits import PIECE_BYTES

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
