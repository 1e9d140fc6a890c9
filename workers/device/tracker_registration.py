"""Registers a device with the tracker, and offers it again once free or if its offer is lost."""

import logging
import secrets
import time
from collections.abc import Callable

from mallorn.core.errors import Unavailable
from mallorn.core.fleet_key import FleetKey
from workers.device.device_class import Identity
from workers.device.tracker_client import NO_KEY, Address, TrackerClient

log = logging.getLogger(__name__)

# A client that received our match key and has not connected after this time never will.
UNCLAIMED_SEC = 2.0


class Registration:
    """Keeps a device registered; methods do not raise if the tracker is gone: it may come back."""

    def __init__(
        self, tracker: Address, key: str, listening: Address, identity: Identity, fleet: FleetKey = NO_KEY
    ) -> None:
        self.key = key
        self.match_key = ""  # a client must present it; it opens one session
        self._address = tracker
        self._listening = listening
        self._identity = identity
        self.fleet = fleet
        self._tracker: TrackerClient | None = None
        self._busy = False
        self._offered_sec = 0.0
        self._has_complained = False

    def fileno(self) -> int | None:
        """Return the connection's descriptor, readable once the tracker closes it, or None."""
        return self._tracker.fileno() if self._tracker is not None else None

    def keep(self) -> None:
        """Register if the tracker is not connected, or renew an offer that was lost."""
        if self._tracker is None:
            self._attempt(self._register)
        elif not self._busy:
            self._attempt(self._offer_again)

    def set_busy(self, busy: bool) -> None:
        """Report to the tracker that a session began, or that the device is free again."""
        self._busy, self.match_key = busy, ""
        self._attempt(self._announce)

    def introduce(self, identity: Identity) -> None:
        """Send the tracker this device's new description after its host changed."""
        self._identity = identity
        self._attempt(self._describe)

    def move(self, listening: Address, identity: Identity) -> None:
        """Set the device's new address and description; the next `keep` registers them."""
        self._listening, self._identity = listening, identity
        self.drop()

    def drop(self) -> None:
        """Close the connection to the tracker; the next `keep` opens a new one."""
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
            self._has_complained = False
        except Unavailable as error:
            if not self._has_complained:
                log.warning("%s; trying again every second", error.message)
            self._has_complained = True
            self.drop()

    def _register(self) -> None:
        self._tracker = TrackerClient(self._address, key=self.fleet)
        log.info("registered with the tracker at %s:%d as %s", *self._address, self.key)
        self._announce()

    def _describe(self) -> None:
        if self._tracker is not None:
            state = {"busy": self._busy, "mallorn": self._identity}
            self._tracker.update({"key": f"server:{self.key}", "addr": [*self._listening], **state})

    def _announce(self) -> None:
        self._describe()
        if self._tracker is not None and not self._busy:
            host, port = self._listening
            self.match_key = f"{self.key}:{secrets.token_hex(8)}"
            self._tracker.put(self.key, host, port, self.match_key)
            self._offered_sec = time.monotonic()

    def _offer_again(self) -> None:
        if self._tracker is None or self.match_key in self._tracker.pending():
            self._offered_sec = time.monotonic()
        elif time.monotonic() - self._offered_sec > UNCLAIMED_SEC:
            log.info("the client that was given our key never came")
            self._announce()
