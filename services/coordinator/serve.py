"""Runs the coordinator as a uvicorn server."""

from asyncio import TimerHandle, Transport
from threading import Event
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from mallorn.core.address_checks import check_binding
from mallorn.core.settings import Settings
from mallorn.db.repositories.access_control import has_api_keys
from mallorn.services.coordinator.app import create_app
from mallorn.services.coordinator.web.artifact_store import Store
from mallorn.services.coordinator.web.authenticator import LocalPeer
from mallorn.services.coordinator.web.caller_dependencies import PEER

# Time for requests in progress when the process is asked to stop.
SHUTDOWN_SEC: Final = 5
# Longer than clients keep idle connections (httpx: 5 s): no request meets a closed one.
KEEP_ALIVE_SEC: Final = 75
HEAD_SEC: Final = 30.0
#: Limit for an incomplete request head; RequestLimits refuses complete ones with a message.
LARGEST_HEAD: Final = 64 * 1024


class CoordinatorHttp(H11Protocol):
    """HTTP connection that adds its peer process to each request; clients cannot forge it.

    It closes if no request head arrives within HEAD_SEC; uvicorn itself would wait for ever.
    """

    _head_timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, PEER: LocalPeer(transport.get_extra_info("socket"))}
        self._update_head_timeout()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_head_timeout()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.trailing_data[0]:  # the beginning of another request
            self._update_head_timeout()

    def _update_head_timeout(self) -> None:
        is_served = self.cycle is not None and not self.cycle.response_complete
        if is_served and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        elif not is_served and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SEC, self.timeout_keep_alive_handler)


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
    Server(server_config(app, settings.host, settings.port), app.state.parts.stopping).run()


def server_config(app: FastAPI, host: str, port: int, shutdown_sec: int = SHUTDOWN_SEC) -> uvicorn.Config:
    """Return the uvicorn configuration of a coordinator."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="asyncio",  # its sockets ask the kernel again whether they are connected
        timeout_graceful_shutdown=shutdown_sec,
        timeout_keep_alive=KEEP_ALIVE_SEC,
        server_header=False,
        http=CoordinatorHttp,
        ws="none",
        h11_max_incomplete_event_size=LARGEST_HEAD,
        log_config=None,  # uvicorn logs through this process's handlers
    )
