"""What an API key looks like, and what of it is kept."""

import hashlib
import secrets
from typing import Final

SECRET_BYTES: Final = 32
ID_BYTES: Final = 4
PREFIX: Final = "mln"


def new_id() -> str:
    """The part of a key that lists show."""
    return secrets.token_hex(ID_BYTES)


def new_key(key_id: str) -> str:
    """A key of 256 bits that nobody had before."""
    return f"{PREFIX}_{key_id}_{new_secret()}"


def new_secret() -> str:
    """256 bits that nobody had before."""
    return secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> str:
    """What is stored of it. Nobody guesses 256 bits, so no salt and no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()
