"""How many connections may wait that have proven nothing yet: the silent make room for whoever comes."""

from collections import Counter
from typing import Final, Protocol

MOST: Final = 64
MOST_OF_AN_ADDRESS: Final = 16


class Guest(Protocol):
    """One connection."""

    def close(self) -> None: ...


class Unproven:
    """The connections that wait, oldest first. Who is honest proves itself at once, and is seldom so old."""

    def __init__(self) -> None:
        self._addresses: dict[Guest, str] = {}

    def add(self, guest: Guest, address: str) -> None:
        """Let it wait. Of too many the oldest of its address is closed, or of the most crowded one."""
        self._addresses[guest] = address
        crowds = Counter(self._addresses.values())
        if crowds[address] > MOST_OF_AN_ADDRESS:
            self._turn_out_of(address)
        elif len(self._addresses) > MOST:
            self._turn_out_of(crowds.most_common(1)[0][0])

    def remove(self, guest: Guest) -> None:
        """It has proven itself, or is gone."""
        self._addresses.pop(guest, None)

    def _turn_out_of(self, address: str) -> None:
        oldest = next(guest for guest, of in self._addresses.items() if of == address)
        self.remove(oldest)
        oldest.close()
