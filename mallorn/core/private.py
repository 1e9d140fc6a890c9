"""Names of what is kept from other owners."""

from hashlib import sha256
from typing import Final

PRIVATE: Final = "private-"
_CHARS: Final = 16


def scope_of(owner: str) -> str:
    """What the families of an owner's private jobs begin with, so that nobody else's share a cost model."""
    return f"{PRIVATE}{sha256(owner.encode()).hexdigest()[:_CHARS]}:"


def in_scope(family: str, scope: str) -> bool:
    """Whether a family belongs to this scope; the empty one is everybody's."""
    return family.startswith(scope) if scope else not family.startswith(PRIVATE)
