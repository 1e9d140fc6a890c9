"""What both databases can store: Postgres takes no NUL, JSON no infinity, and UTF-8 no half of a pair."""

import json
import math
from typing import Any, Final

MAX_DEPTH: Final = 20
WIDEST: Final = 2**63  # SQLite's whole numbers end below it
TOLD: Final = 80  # characters


def read_json(text: str | bytes) -> Any:
    """The value of a stranger's text. Raises ValueError unless it is JSON that can be stored."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    check_storable(value)
    return value


def compact_json(value: object) -> str:
    """JSON without blanks, keys sorted: equal values are equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def told(stranger: object) -> str:
    """A stranger's word as a part of a sentence: short, in one line, without what moves a cursor."""
    text = str(stranger)[:TOLD]
    return text if text.isprintable() else ascii(text)


def check_storable(value: Any, depth: int = 0) -> None:
    """Raise ValueError for a JSON value that some database, or JSON itself, would refuse."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a text contains the character NUL")
        if not value.isprintable() and any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("a text contains half of a surrogate pair")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    elif isinstance(value, int) and not -WIDEST <= value < WIDEST:
        raise ValueError("a whole number has more than 64 bits")
    elif isinstance(value, dict):
        for key, member in value.items():
            check_storable(key, depth + 1)
            check_storable(member, depth + 1)
    elif isinstance(value, list):
        for member in value:
            check_storable(member, depth + 1)
