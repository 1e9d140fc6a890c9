"""A device's side of the tracker: it says who it is and offers itself, again and again."""

import logging
import secrets
import time
from collections.abc import Callable

from mallorn.core.errors import Unavailable
from mallorn.core.fleet_key import FleetKey
from workers.device.device_class import Identity
from workers.device.tracker_client import NO_KEY, Address, TrackerClient

log = logging.getLogger(__name__)

# A client that was given our key and has not connected after this long never will.
UNCLAIMED_SEC = 2.0


class Registration:
    """Keeps one device known to a tracker that may go and come back; no method raises for that."""

    def __init__(
        self, tracker: Address, key: str, listening: Address, identity: Identity, fleet: FleetKey = NO_KEY
    ) -> None:
        self.key = key
        self.match_key = ""  # what a client must show; opens one session
        self._address = tracker
        self._listening = listening
        self._identity = identity
        self.fleet = fleet
        self._tracker: TrackerClient | None = None
        self._busy = False
        self._offered_sec = 0.0
        self._complained = False

    def fileno(self) -> int | None:
        """Readable once the tracker is gone, because it sends nothing unasked."""
        return self._tracker.fileno() if self._tracker is not None else None

    def keep(self) -> None:
        """Register with a tracker that does not know us, and renew the offer if it was lost."""
        if self._tracker is None:
            self._tell(self._register)
        elif not self._busy:
            self._tell(self._offer_again)

    def set_busy(self, busy: bool) -> None:
        """Tell the tracker that a session began, or that the device is free again."""
        self._busy, self.match_key = busy, ""
        self._tell(self._announce)

    def introduce(self, identity: Identity) -> None:
        """Tell the tracker what has changed of this device's host."""
        self._identity = identity
        self._tell(self._describe)

    def move(self, listening: Address, identity: Identity) -> None:
        """It listens elsewhere now: `keep` registers it there."""
        self._listening, self._identity = listening, identity
        self.drop()

    def drop(self) -> None:
        """Forget the connection; `keep` makes another."""
        if self._tracker is not None:
            self._tracker.close()
            self._tracker = None

    def _tell(self, step: Callable[[], None]) -> None:
        try:
            step()
            self._complained = False
        except Unavailable as error:
            if not self._complained:
                log.warning("%s; trying again every second", error.message)
            self._complained = True
            self.drop()

    def _register(self) -> None:
        self._tracker = TrackerClient(self._address, key=self.fleet)
        log.info("registered with the tracker at %s:%d as %s", *self._address, self.key)
        self._announce()

    def _describe(self) -> None:
        if self._tracker is not None:
            about = {"busy": self._busy, "mallorn": self._identity}
            self._tracker.update({"key": f"server:{self.key}", "addr": [*self._listening], **about})

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
