"""Format of API keys, the digest that is stored of them, and their scopes."""

import hashlib
import json
import secrets
from collections.abc import Collection
from enum import StrEnum
from typing import Final

SECRET_BYTES: Final = 32
ID_BYTES: Final = 4
PREFIX: Final = "mln"


class Scope(StrEnum):
    """A kind of request that an API key may allow."""

    READ = "read"  # show and list
    SUBMIT = "submit"  # upload, submit, control and delete one's own models and jobs
    DEVICE = "device"  # only show the fleet: for programs that run next to devices
    ADMIN = "admin"  # manage what all owners share: keys, cost models, devices


class OwnerAction(StrEnum):
    """An action of an admin on an owner."""

    SIGN_OUT = "sign-out"  # end browser sessions only
    BAN = "ban"  # revoke keys, end sessions and jobs, refuse new ones
    READMIT = "readmit"
    ERASE = "erase"  # ban, and replace the name wherever it is stored


ALL_SCOPES: Final = tuple(Scope)
USUAL_SCOPES: Final = (Scope.READ, Scope.SUBMIT)


def allows(scopes: Collection[Scope], scope: Scope) -> bool:
    """Return whether a key with these scopes may make requests that require `scope`."""
    return scope in scopes or Scope.ADMIN in scopes


def new_id() -> str:
    """Return a new random key id, the part of an API key that is not secret."""
    return secrets.token_hex(ID_BYTES)


def new_key(key_id: str) -> str:
    """Return a new API key: prefix, key id and a fresh random 256-bit secret."""
    return f"{PREFIX}_{key_id}_{new_secret()}"


def new_secret() -> str:
    """Return a fresh random 256-bit secret."""
    return secrets.token_urlsafe(SECRET_BYTES)


def hash_secret(secret: str) -> str:
    """Return the digest to store. A random 256-bit secret needs no salt or slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Purpose(StrEnum):
    """Purpose of a digest; digests of different purposes are never equal."""

    SESSION = "browser session"
    PAGE = "random text of a page"
    PAGE_SECRET = "secret of a browser session's page"  # noqa: S105 - no secret
    LOGIN_CODE = "code of mallorn login"


def hash_for(purpose: Purpose, *parts: str) -> str:
    return hash_secret(json.dumps([purpose, *parts]))


def hash_page_secret(secret: str) -> str:
    """Return the digest of a page's random text, with a dot and a sign-in's claim if any."""
    text, _, claim = secret.partition(".")
    return hash_for(Purpose.PAGE_SECRET, hash_for(Purpose.PAGE, text), claim)
