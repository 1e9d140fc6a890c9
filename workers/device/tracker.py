"""TVM's RPC tracker, bound to loopback or a private interface: it says which devices are free."""

import asyncio
import logging
import secrets
from collections.abc import Callable

from workers.device.addresses import listen
from workers.device.tracker_client import Address, TrackerClient

log = logging.getLogger(__name__)
OnReady = Callable[[str, int], None]


def log_ready(host: str, port: int) -> None:
    log.info("ready at %s:%d", host, port)


def serve_tracker(host: str = "127.0.0.1", port: int = 9190, *, on_ready: OnReady = log_ready) -> None:
    """Run a tracker until the process ends; port 0 takes any. Raises InvalidRequest for a public address."""
    listener = listen(host, range(port, port + 1))
    # Imported late: the callers of `tracker_summary` need neither TVM nor tornado.
    from tvm.rpc.tracker import TrackerServerHandler

    asyncio.set_event_loop(asyncio.new_event_loop())
    handler = TrackerServerHandler(listener, secrets.token_hex())
    on_ready(*listener.getsockname()[:2])
    handler.run()


def tracker_summary(address: Address, timeout_sec: float = 5.0) -> dict[str, tuple[int, int]]:
    """The servers under each key, as (free, busy); raises Unavailable when the tracker does not answer."""
    with TrackerClient(address, timeout_sec) as client:
        summary = client.summary()
    keys = [str(server["key"]).removeprefix("server:") for server in summary["server_info"]]
    free = {key: int(queue["free"]) for key, queue in summary["queue_info"].items()}
    return {key: (free.get(key, 0), keys.count(key) - free.get(key, 0)) for key in sorted(set(keys))}
