"""What both databases can store: Postgres takes no NUL, JSON no infinity, and UTF-8 no half of a pair."""

import math
from typing import Any

MAX_DEPTH = 20


def check_storable(value: Any, depth: int = 0) -> None:
    """Raise ValueError for a JSON value that some database, or JSON itself, would refuse."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    elif isinstance(value, dict):
        for key, member in value.items():
            check_storable(key, depth + 1)
            check_storable(member, depth + 1)
    elif isinstance(value, list):
        for member in value:
            check_storable(member, depth + 1)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise ValueError("a text contains the character NUL")
    if not text.isprintable() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("a text contains half of a surrogate pair")
