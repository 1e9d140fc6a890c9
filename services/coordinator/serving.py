"""Runs the coordinator."""

import ipaddress
from typing import Final

import uvicorn

from mallorn.core.errors import InvalidRequest
from mallorn.core.settings import Settings
from services.coordinator.app import create_app

# Streams of events have no end of their own: they are cut, and their readers come back.
SHUTDOWN_SEC: Final = 3


def serve(settings: Settings) -> None:
    """Serve until stopped. Raises InvalidRequest for a public address while no key is configured."""
    check_binding(settings)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=SHUTDOWN_SEC,
        server_header=False,
    )


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
