"""Runs TVM's RPC tracker, which assigns free devices, on loopback or a private interface."""

import asyncio
import logging
from collections.abc import Callable

from mallorn.core.fleet_key import FleetKey
from mallorn.workers.device.private_sockets import listen
from mallorn.workers.device.tracker_client import NO_KEY
from mallorn.workers.subprocesses.hide_torch import hide_torch

log = logging.getLogger(__name__)
OnReady = Callable[[str, int], None]


def log_ready(host: str, port: int) -> None:
    log.info("ready at %s:%d", host, port)


def serve_tracker(
    host: str = "127.0.0.1", port: int = 9190, *, key: FleetKey = NO_KEY, on_ready: OnReady = log_ready
) -> None:
    """Run a tracker until the process ends; port 0 lets the kernel choose one. Raises
    InvalidRequest if the address is public or in use, or not loopback and `key` is empty."""
    listener = listen(host, range(port, port + 1), key)
    hide_torch()
    from mallorn.workers.device.authenticated_tracker import Tracker

    asyncio.set_event_loop(asyncio.new_event_loop())
    handler = Tracker(listener, key)
    on_ready(*listener.getsockname()[:2])
    handler.run()
