"""TVM's RPC tracker, bound to loopback or a private interface: it says which devices are free."""

import asyncio
import logging
from collections.abc import Callable

from mallorn.core.fleet_key import FleetKey
from workers.device.addresses import listen
from workers.device.tracker_client import NO_KEY, Address, TrackerClient

log = logging.getLogger(__name__)
OnReady = Callable[[str, int], None]
SUMMARY_SEC = 5.0


def log_ready(host: str, port: int) -> None:
    log.info("ready at %s:%d", host, port)


def serve_tracker(
    host: str = "127.0.0.1", port: int = 9190, *, key: FleetKey = NO_KEY, on_ready: OnReady = log_ready
) -> None:
    """Run a tracker until the process ends; port 0 takes any.

    Raises InvalidRequest for a public address, and without a key for all but loopback.
    """
    listener = listen(host, range(port, port + 1), key)
    # Imported late: the callers of `tracker_summary` need neither TVM nor tornado.
    from workers.device.tracker_server import Tracker

    asyncio.set_event_loop(asyncio.new_event_loop())
    handler = Tracker(listener, key)
    on_ready(*listener.getsockname()[:2])
    handler.run()


def tracker_summary(address: Address, key: FleetKey = NO_KEY) -> dict[str, tuple[int, int]]:
    """The servers under each key, as (free, busy); raises Unavailable when the tracker does not answer."""
    with TrackerClient(address, SUMMARY_SEC, key) as client:
        summary = client.summary()
    keys = [str(server["key"]).removeprefix("server:") for server in summary["server_info"]]
    free = {key: int(queue["free"]) for key, queue in summary["queue_info"].items()}
    return {key: (free.get(key, 0), keys.count(key) - free.get(key, 0)) for key in sorted(set(keys))}
