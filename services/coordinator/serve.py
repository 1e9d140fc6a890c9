"""Runs the coordinator."""

from asyncio import Transport
from threading import Event
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from db.repositories.api_keys import holds_keys
from mallorn.core.address_checks import check_binding
from mallorn.core.settings import Settings
from services.coordinator.app import create_app
from services.coordinator.web.artifact_store import Store
from services.coordinator.web.authenticator import LocalPeer
from services.coordinator.web.caller_dependencies import PEER

# For requests that are under way when the process is told to stop.
SHUTDOWN_SEC: Final = 5
# Longer than clients keep a connection that is idle (httpx: 5 s): then none is closed under a request.
KEEP_ALIVE_SEC: Final = 75


class PeerProtocol(H11Protocol):
    """Notes in the state of its requests which program is at its other end, whatever headers say."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Called once for every connection."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, PEER: LocalPeer(transport.get_extra_info("socket"))}


class Server(uvicorn.Server):
    """Ends streams of events when it is told to stop; their readers come back to the next process."""

    def __init__(self, config: uvicorn.Config, stopping: Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called on SIGINT and SIGTERM."""
        self._stopping.set()
        super().handle_exit(sig, frame)


def serve(settings: Settings) -> None:
    """Serve until stopped. Raises InvalidRequest for a public address while no key is configured."""
    check_binding(
        settings.host, bool(settings.api_keys or settings.oidc_issuer) or holds_keys(settings.database_url)
    )
    Store(settings.artifacts).sweep()
    app = create_app(settings)
    config = server_config(app, settings.host, settings.port)
    Server(config, app.state.parts.stopping).run()


def server_config(app: FastAPI, host: str, port: int, shutdown_sec: int = SHUTDOWN_SEC) -> uvicorn.Config:
    """Return how a coordinator listens."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=PeerProtocol,
        ws="none",
        loop="asyncio",  # whose sockets ask the kernel anew whether they are connected
        timeout_graceful_shutdown=shutdown_sec,
        timeout_keep_alive=KEEP_ALIVE_SEC,
        server_header=False,
        log_config=None,  # its lines go where those of all processes go
    )
