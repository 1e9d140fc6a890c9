"""Who waits for a device at the tracker, and which is theirs: one that is free, of the class asked for."""

from typing import Any

from workers.device.device_class import described_class


class DeviceRequestQueue:
    """Of one key. Who asked first is served first, by the device that has been free for longest.

    Devices and clients are Peers of the tracker; an offer is a device, its host, port and match key.
    """

    def __init__(self) -> None:
        self._free: list[tuple[Any, ...]] = []
        self._asking: list[tuple[Any, str]] = []

    def put(self, offer: tuple[Any, ...]) -> None:
        """A device is free."""
        self._free.append(offer)
        self._match()

    def remove(self, offer: tuple[Any, ...]) -> None:
        """It is gone."""
        if offer in self._free:
            self._free.remove(offer)

    def ask(self, client: Any, wanted: str) -> None:
        """A client waits for one of this class, or for any."""
        self._asking.append((client, wanted))
        self._match()

    def summary(self) -> dict[str, int]:
        """How many are free, and how many wait."""
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
