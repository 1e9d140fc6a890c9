"""The key that a fleet shares: who knows it may register devices, ask for them, and run code on them."""

import hashlib
import hmac
from typing import Final

from mallorn.core.errors import InvalidRequest

LEAST_CHARS: Final = 32
#: In a data directory: the key of the parts that `mallorn up` starts there.
KEY_FILE: Final = "rpc.key"
HINT: Final = "MALLORN_RPC_KEY=$(openssl rand -hex 32), the same on every host of the fleet"


class FleetKey:
    """One key, or several while they are changed: the first proves, each is believed. False: none."""

    def __init__(self, text: str = "") -> None:
        """Keys with commas between them. Raises InvalidRequest for one that can be guessed."""
        self._keys = tuple(each.strip().encode() for each in text.split(",") if each.strip())
        if text and not self._keys:
            raise InvalidRequest(
                "the fleet's key is empty: MALLORN_RPC_KEY, or rpc.key in the data directory", hint=HINT
            )
        if any(len(key) < LEAST_CHARS for key in self._keys):
            raise InvalidRequest(f"a fleet's key has at least {LEAST_CHARS} characters", hint=HINT)

    @property
    def text(self) -> str:
        """As it is given to a process that needs it."""
        return ",".join(key.decode() for key in self._keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __repr__(self) -> str:
        return f"FleetKey({len(self._keys)} keys)"

    def proof(self, purpose: str, *said: str) -> str:
        """Shows to who shares the key that we know it: of use for this purpose and what was said, alone."""
        return _signed(self._keys[0], purpose, said) if self._keys else ""

    def proves(self, proof: str, purpose: str, *said: str) -> bool:
        """Whether it was made by someone who knows one of our keys; nothing is, without any."""
        made = (_signed(key, purpose, said) for key in self._keys)
        return any(hmac.compare_digest(each.encode(), _bytes(proof)) for each in made)

    def of_session(self, match_key: str) -> list["FleetKey"]:
        """A key that is good for one session alone: a process that runs strangers' code may have it."""
        return [FleetKey(_signed(key, "session", (match_key,))) for key in self._keys]


def _signed(key: bytes, purpose: str, said: tuple[str, ...]) -> str:
    words = [purpose, *said]
    # Lengths first: what was said cannot be cut in another way.
    text = f"mallorn {[len(word) for word in words]} {''.join(words)}"
    return hmac.new(key, _bytes(text), hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    """Of any text that JSON can bring, halves of surrogate pairs too."""
    return text.encode(errors="surrogatepass")
