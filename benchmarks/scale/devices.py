"""Simulated devices: they register with the tracker as `mallorn device` does, and run nothing.

A client that got a device from the tracker connects, sends the match key and receives the device's
description. It holds the device until it closes the connection.
"""

import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from mallorn.core.targets import Target, parse_target
from mallorn.workers.device.device_class import DeviceClass, Endpoint, endpoint_of
from mallorn.workers.device.tracker_client import Address, TrackerClient, receive_exactly, tracker_key
from mallorn.workers.subprocesses.shutdown import STOP

HOST_CLASS: Final = "simulated-by-scale"
THREADS: Final = 2
KEY_BYTES: Final = 256  # match keys are padded to this length
RENEW_SEC: Final = 1.0
ASK_SEC: Final = 5.0
TVM_VERSION: Final = "0.27.0"


def identity_of(number: int, target: str) -> dict[str, object]:
    """Return the description of a simulated device, as a real one sends it to the tracker."""
    return {
        "name": f"scale-{number:03}",
        "host_id": f"scale-host-{number:03}",
        "host_class": HOST_CLASS,
        "threads": THREADS,
        "tvm_version": TVM_VERSION,
        "target": target,
    }


@contextmanager
def borrow_device(tracker: Address, target: Target, like: DeviceClass | None) -> Iterator[Endpoint]:
    """Hold a free device of a target and class during the block; wait until the tracker
    assigns one.

    Raises ShutdownRequested if the worker must stop meanwhile, Unavailable without a tracker.
    """
    while True:
        STOP.raise_if_requested()
        with TrackerClient(tracker) as client:
            class_text = "" if like is None else like.json_text
            granted = client.request_device(tracker_key(target), ASK_SEC, class_text)
        if granted is not None:
            break
    host, port, match_key = granted
    with socket.create_connection((host, port)) as connection:
        connection.sendall(match_key.encode().ljust(KEY_BYTES))
        size = int(receive_exactly(connection, 8))
        yield endpoint_of(json.loads(receive_exactly(connection, size)))


def serve_devices(tracker: Address, targets: list[str], count: int) -> None:
    """Serve `count` devices, whose targets take turns, until the process ends."""
    from mallorn.workers.device.device_server import Registration

    listener = socket.create_server(("127.0.0.1", 0), backlog=count)
    address = listener.getsockname()
    devices: list[Registration] = []
    for number in range(count):
        text = targets[number % len(targets)]
        key = tracker_key(parse_target(text))
        identity: Any = identity_of(number, text)  # without facts that only people read
        devices.append(Registration(tracker, key, address, identity))
    in_use: dict[socket.socket, Registration] = {}
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    renew_at_sec = 0.0
    while True:
        if time.monotonic() >= renew_at_sec:
            renew_at_sec = time.monotonic() + RENEW_SEC
            for device in devices:
                device.renew_registration()
        for key_of_socket, _ in selector.select(RENEW_SEC):
            if key_of_socket.fileobj is listener:
                connection, _ = listener.accept()
                match_key = receive_exactly(connection, KEY_BYTES).decode().strip()
                device = next(each for each in devices if each.match_key == match_key)
                device.set_busy(True)
                words = json.dumps(device.identity).encode()
                connection.sendall(f"{len(words):8}".encode() + words)
                in_use[connection] = device
                selector.register(connection, selectors.EVENT_READ)
            else:
                connection = key_of_socket.fileobj  # type: ignore[assignment]
                selector.unregister(connection)
                connection.close()
                in_use.pop(connection).set_busy(False)


def main() -> None:
    """Serve devices: HOST:PORT of the tracker, how many devices, and their targets."""
    host, _, port = sys.argv[1].rpartition(":")
    serve_devices((host, int(port)), sys.argv[3:], int(sys.argv[2]))


if __name__ == "__main__":
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    main()
