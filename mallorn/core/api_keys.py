"""What an API key looks like, what of it is kept, and what it may do."""

import hashlib
import secrets
from collections.abc import Collection
from enum import StrEnum
from typing import Final

SECRET_BYTES: Final = 32
ID_BYTES: Final = 4
PREFIX: Final = "mln"


class Scope(StrEnum):
    """One kind of request."""

    READ = "read"  # show and list
    SUBMIT = "submit"  # upload, submit, steer and delete what one owns
    DEVICE = "device"  # show the fleet alone: for what runs beside devices
    ADMIN = "admin"  # what is everybody's: keys, cost models, devices


class OwnerDeed(StrEnum):
    """What an admin does to an owner."""

    SIGN_OUT = "sign-out"  # browsers alone
    PUT_OUT = "put-out"  # keys, browsers and jobs, and nobody comes in under this name
    LET_IN = "let-in"
    ERASE = "erase"  # put out, and another name wherever this one stood


ALL_SCOPES: Final = tuple(Scope)
USUAL_SCOPES: Final = (Scope.READ, Scope.SUBMIT)


def allows(held: Collection[Scope], needed: Scope) -> bool:
    """Whether a key with these scopes may do what needs this one."""
    return needed in held or Scope.ADMIN in held


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
