"""TVM's tracker, restricted to peers that prove that they know the fleet's key."""

import logging
import secrets
import socket
from typing import Any, Final

from tvm.rpc.tracker import TCPEventHandler, TrackerServerHandler

from mallorn.core.address_checks import is_from_this_user
from mallorn.core.fleet_key import FleetKey
from mallorn.workers.device.device_class import LONGEST, class_text_of_entry
from mallorn.workers.device.pending_connections import Unauthenticated
from mallorn.workers.device.tracker_client import HELLO, PROVE, REFUSED, REQUEST, SUCCESS, UPDATE_INFO

log = logging.getLogger(__name__)
PATIENCE_SEC: Final = 10.0
_NONCE_CHARS: Final = 256


class DeviceRequestQueue:
    """The queue of one tracker key: its free devices, and clients that wait for a device.

    A client waits for a device of one class or of any. The oldest request is served first,
    by the device that has been free for longest. Devices and clients are Peers. An offer is
    a tuple of device, host, port and match key, which opens the device's next session.
    """

    def __init__(self) -> None:
        self._free: list[tuple[Any, ...]] = []
        self._requests: list[tuple[Any, str]] = []

    def put(self, offer: tuple[Any, ...]) -> None:
        self._free.append(offer)
        self._assign_devices()

    def remove(self, offer: tuple[Any, ...]) -> None:
        if offer in self._free:
            self._free.remove(offer)

    def ask(self, client: Any, class_text: str) -> None:
        self._requests.append((client, class_text))
        self._assign_devices()

    def summary(self) -> dict[str, int]:
        return {"free": len(self._free), "pending": len(self._requests)}

    def _assign_devices(self) -> None:
        # Remove clients that hung up: if their class never came back, they would stay forever.
        self._requests = [request for request in self._requests if not request[0].is_gone]
        for client, class_text in list(self._requests):
            of_class = (o for o in self._free if class_text in ("", class_text_of_entry(o[0].summary())))
            if (offer := next(of_class, None)) is None:
                continue
            self._requests.remove((client, class_text))
            if client.send_device(offer[1:]):
                self._free.remove(offer)
                offer[0].pending_matchkeys.discard(offer[-1])


class Peer(TCPEventHandler):  # type: ignore[misc]
    """The connection of a device or client to the tracker. It has to authenticate first."""

    def __init__(self, tracker: "Tracker", end: socket.socket, address: tuple[str, int]) -> None:
        super().__init__(tracker, end, address)
        self._key = tracker.key
        self._nonce = secrets.token_hex(16)
        self._peer_nonce: str | None = None
        self._waiting = tracker.waiting
        self._admitted = not self._key
        if not self._admitted:
            self._waiting.add(self, address[0])
            tracker.call_later(PATIENCE_SEC, self._close_if_unauthenticated)

    def call_handler(self, args: list[Any]) -> None:
        code = args[0]
        if code == HELLO and self._peer_nonce is None:  # a peer gets one answer
            self._peer_nonce = str(args[1])[:_NONCE_CHARS]
            proof = self._key.sign("tracker", self._peer_nonce, self._nonce)
            self.ret_value([self._nonce, bool(self._key), proof])
        elif code == PROVE and self._peer_nonce is not None:
            self._admitted = self._key.is_valid_signature(str(args[1]), "peer", self._peer_nonce, self._nonce)
            if self._admitted:
                self._waiting.remove(self)
                self.ret_value(SUCCESS)
            else:
                self._refuse("does not know this tracker's key of the fleet")
        elif self._admitted and code == UPDATE_INFO and len(str(args)) > LONGEST:
            self._refuse("sent a description that is too long")
        elif self._admitted and code == REQUEST:
            self._tracker.ask(str(args[1]), self, str(args[2]))
        elif self._admitted:
            super().call_handler(args)
        else:
            self._refuse("sent a request before proving that it knows the fleet's key")

    @property
    def is_gone(self) -> bool:
        return not self._sock

    def send_device(self, device: tuple[Any, ...]) -> bool:
        """Tell the client which device it may use; return False if the client is gone."""
        try:
            self.ret_value([SUCCESS, device])
        except OSError:
            return False
        return not self.is_gone

    def _refuse(self, reason: str) -> None:
        log.warning("%s %s", self.name(), reason)
        self.ret_value(REFUSED)
        self.close()

    def on_close(self) -> None:
        self._waiting.remove(self)
        super().on_close()

    def _close_if_unauthenticated(self) -> None:
        if not self._admitted and self._sock:
            self.close()


class Tracker(TrackerServerHandler):  # type: ignore[misc]
    """A tracker that assigns free devices to authenticated clients."""

    def __init__(self, listener: socket.socket, key: FleetKey) -> None:
        self.key = key
        self.waiting = Unauthenticated()
        super().__init__(listener, secrets.token_hex())

    def create_scheduler(self, key: str) -> DeviceRequestQueue:
        return DeviceRequestQueue()

    def ask(self, key: str, client: Peer, class_text: str) -> None:
        """Queue a client for a device of this key and class (empty text: any class)."""
        if key not in self._scheduler_map:
            self._scheduler_map[key] = self.create_scheduler(key)
        self._scheduler_map[key].ask(client, class_text)

    def call_later(self, seconds: float, callback: Any) -> None:
        self._ioloop.call_later(seconds, callback)

    def _on_event(self, _events: int) -> None:
        while True:
            try:
                end, address = self._sock.accept()
            except OSError:  # no connection is waiting
                return
            if self.key or is_from_this_user(end):
                Peer(self, end, address)
            else:
                log.warning("%s is of another user, and the fleet has no key", address)
                end.close()
