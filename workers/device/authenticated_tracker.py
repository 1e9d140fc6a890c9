"""TVM's tracker, for those alone who prove that they know the fleet's key."""

import logging
import secrets
import socket
from typing import Any, Final

from tvm.rpc.tracker import TCPEventHandler, TrackerServerHandler

from mallorn.core.fleet_key import FleetKey
from workers.device.device_class import LONGEST, described_class
from workers.device.pending_connections import Unauthenticated
from workers.device.tracker_client import HELLO, PROVE, REFUSED, REQUEST, SUCCESS, UPDATE_INFO

log = logging.getLogger(__name__)
PATIENCE_SEC: Final = 10.0
_NONCE_CHARS: Final = 256


class DeviceRequestQueue:
    """The free devices of one key, and the clients that wait for one, each for its class or for any.

    The client that asked first is served first, by the device that has been free for longest.

    Devices and clients are Peers of the tracker; an offer is a device, its host, port and match key.
    """

    def __init__(self) -> None:
        self._free: list[tuple[Any, ...]] = []
        self._asking: list[tuple[Any, str]] = []

    def put(self, offer: tuple[Any, ...]) -> None:
        self._free.append(offer)
        self._match()

    def remove(self, offer: tuple[Any, ...]) -> None:
        if offer in self._free:
            self._free.remove(offer)

    def ask(self, client: Any, wanted: str) -> None:
        self._asking.append((client, wanted))
        self._match()

    def summary(self) -> dict[str, int]:
        return {"free": len(self._free), "pending": len(self._asking)}

    def _match(self) -> None:
        # Nobody else takes out who hung up: a class that never comes back would keep them for ever.
        self._asking = [each for each in self._asking if not each[0].gone]
        for client, wanted in list(self._asking):
            offer = next(
                (each for each in self._free if wanted in ("", described_class(each[0].summary()))), None
            )
            if offer is None:
                continue
            self._asking.remove((client, wanted))
            if client.hand_out(offer[1:]):
                self._free.remove(offer)
                offer[0].pending_matchkeys.discard(offer[-1])


class Peer(TCPEventHandler):  # type: ignore[misc]
    """One connection. Before it has proven itself it gets no answer but to that."""

    def __init__(self, tracker: "Tracker", end: socket.socket, address: tuple[str, int]) -> None:
        super().__init__(tracker, end, address)
        self._key = tracker.key
        self._nonce = secrets.token_hex(16)
        self._said = ""
        self._waiting = tracker.waiting
        self._admitted = not self._key
        if not self._admitted:
            self._waiting.add(self, address[0])
            tracker.call_later(PATIENCE_SEC, self._expire)

    def call_handler(self, args: list[Any]) -> None:
        code = args[0]
        if code == HELLO:
            self._said = str(args[1])[:_NONCE_CHARS]
            proof = self._key.proof("tracker", self._said, self._nonce)
            self.ret_value([self._nonce, bool(self._key), proof])
        elif code == PROVE:
            self._admit(str(args[1]))
        elif self._admitted and code == UPDATE_INFO and len(str(args)) > LONGEST:
            self._refuse("says more of itself than its list has room for")
        elif self._admitted and code == REQUEST:
            self._tracker.ask(str(args[1]), self, str(args[2]))
        elif self._admitted:
            super().call_handler(args)
        else:
            self._refuse("asked for something before it proved that it knows our key")

    @property
    def gone(self) -> bool:
        """Whether it hung up."""
        return not self._sock

    def hand_out(self, device: tuple[Any, ...]) -> bool:
        """Tell a client which device is its own; False: it is gone."""
        try:
            self.ret_value([SUCCESS, device])
        except OSError:
            return False
        return not self.gone

    def _admit(self, proof: str) -> None:
        self._admitted = self._key.proves(proof, "peer", self._said, self._nonce)
        if self._admitted:
            self._waiting.remove(self)
            self.ret_value(SUCCESS)
        else:
            self._refuse("does not know our key")

    def _refuse(self, why: str) -> None:
        log.warning("%s %s", self.name(), why)
        self.ret_value(REFUSED)
        self.close()

    def on_close(self) -> None:
        self._waiting.remove(self)
        super().on_close()

    def _expire(self) -> None:
        if not self._admitted and self._sock:
            self.close()


class Tracker(TrackerServerHandler):  # type: ignore[misc]
    """Says which devices are free."""

    def __init__(self, listener: socket.socket, key: FleetKey) -> None:
        self.key = key
        self.waiting = Unauthenticated()
        super().__init__(listener, secrets.token_hex())

    def create_scheduler(self, key: str) -> DeviceRequestQueue:
        return DeviceRequestQueue()

    def ask(self, key: str, client: Peer, wanted: str) -> None:
        """A client waits for a device of this key and, unless it is empty, of this class."""
        if key not in self._scheduler_map:
            self._scheduler_map[key] = self.create_scheduler(key)
        self._scheduler_map[key].ask(client, wanted)

    def call_later(self, seconds: float, what: Any) -> None:
        """Do something in the loop after so long."""
        self._ioloop.call_later(seconds, what)

    def _on_event(self, _events: int) -> None:
        while True:
            try:
                end, address = self._sock.accept()
            except OSError:  # nobody waits any more
                return
            Peer(self, end, address)
