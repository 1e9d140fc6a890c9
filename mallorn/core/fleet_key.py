"""Secret shared by tracker, devices and workers; its holders may run code on devices."""

import hashlib
import hmac
from typing import Final

from mallorn.core.errors import InvalidRequest

LEAST_CHARS: Final = 32
#: File in a data directory with the key of the processes that `mallorn up` starts.
KEY_FILE: Final = "rpc.key"
HINT: Final = "MALLORN_RPC_KEY=$(openssl rand -hex 32), the same on every host of the fleet"


class FleetKey:
    """Keys of the fleet: the first signs, all of them verify. False if there is none."""

    def __init__(self, text: str = "") -> None:
        """Split keys at commas. Raises InvalidRequest if one is too short or all are blank."""
        self._keys = tuple(key.strip().encode() for key in text.split(",") if key.strip())
        if text and not self._keys:
            message = "the fleet's key is empty: MALLORN_RPC_KEY, or rpc.key in the data directory"
            raise InvalidRequest(message, hint=HINT)
        if any(len(key) < LEAST_CHARS for key in self._keys):
            raise InvalidRequest(f"the fleet's key must have at least {LEAST_CHARS} characters", hint=HINT)

    @property
    def text(self) -> str:
        """Comma-separated keys, as passed to another process."""
        return ",".join(key.decode() for key in self._keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __repr__(self) -> str:
        return f"FleetKey({len(self._keys)} keys)"

    def sign(self, purpose: str, *texts: str) -> str:
        """Return a signature of purpose and texts by the first key; empty without keys."""
        return _signed(self._keys[0], purpose, texts) if self._keys else ""

    def is_valid_signature(self, proof: str, purpose: str, *texts: str) -> bool:
        """Return whether `proof` is a signature by one of the keys; False without keys."""
        signatures = (_signed(key, purpose, texts) for key in self._keys)
        return any(hmac.compare_digest(signature.encode(), _bytes(proof)) for signature in signatures)

    def derive_session_keys(self, match_key: str) -> list["FleetKey"]:
        """Derive keys for one device session, which untrusted processes may see."""
        return [FleetKey(_signed(key, "session", (match_key,))) for key in self._keys]


def _signed(key: bytes, purpose: str, texts: tuple[str, ...]) -> str:
    parts = [purpose, *texts]
    # The lengths come first, so that the texts cannot be split in another way.
    text = f"mallorn {[len(word) for word in parts]} {''.join(parts)}"
    return hmac.new(key, _bytes(text), hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    """Encode any text that JSON can contain, including lone surrogates."""
    return text.encode(errors="surrogatepass")
