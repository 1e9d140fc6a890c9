"""Readiness probes: cheap checks of whether a process of the stack is ready to work."""

import socket
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from mallorn.core.errors import Unavailable
from mallorn.core.fleet_key import FleetKey
from mallorn.core.targets import Target

Probe = Callable[[], bool]

TIMEOUT_SEC = 2.0


def make_http_probe(url: str) -> Probe:
    """Return a probe that is True once a GET of the URL answers with status 200."""
    parts = urlsplit(url)

    def is_ready() -> bool:
        with closing(HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_SEC)) as connection:
            try:
                connection.request("GET", parts.path)
                return connection.getresponse().status == HTTPStatus.OK
            except (OSError, HTTPException):
                return False

    return is_ready


def make_redis_probe(socket_path: Path) -> Probe:
    """Return a probe that is True once the broker on a unix socket answers a PING."""

    def is_ready() -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(TIMEOUT_SEC)
                connection.connect(str(socket_path))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    return is_ready


def make_device_probe(tracker: tuple[str, int], fleet: FleetKey, target: Target | None = None) -> Probe:
    """Return a probe that is True once a device, for `target` if given, is registered."""
    from mallorn.workers.device.tracker_client import tracker_key

    server_key = f"server:{tracker_key(target)}" if target else None
    return lambda: any(server_key in (None, key) for key in _fetch_registered_keys(tracker, fleet) or ())


def make_tracker_probe(tracker: tuple[str, int], fleet: FleetKey) -> Probe:
    """Return a probe that is True once the tracker answers a request for its summary."""
    return lambda: _fetch_registered_keys(tracker, fleet) is not None


def _fetch_registered_keys(address: tuple[str, int], fleet: FleetKey) -> list[str] | None:
    from mallorn.workers.device.tracker_client import TrackerClient

    try:
        with TrackerClient(address, TIMEOUT_SEC, fleet) as tracker:
            return [str(server["key"]) for server in tracker.summary()["server_info"]]
    except Unavailable:
        return None
