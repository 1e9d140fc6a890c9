"""Runs the coordinator."""

import ipaddress
from threading import Event
from types import FrameType
from typing import Final

import uvicorn

from mallorn.core.errors import InvalidRequest
from mallorn.core.settings import Settings
from services.coordinator.app import create_app

# For requests that are under way when the process is told to stop.
SHUTDOWN_SEC: Final = 5


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
    check_binding(settings)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=SHUTDOWN_SEC,
        server_header=False,
    )
    Server(config, app.state.parts.stopping).run()


def check_binding(settings: Settings) -> None:
    """Raise InvalidRequest unless only this machine can connect or a key is asked for."""
    if not settings.api_keys and not is_loopback(settings.host):
        raise InvalidRequest(
            f"{settings.host} can be reached from other machines and no API key is configured",
            hint="set MALLORN_API_KEYS=name:sha256hex, or --host 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
