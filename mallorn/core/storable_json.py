"""JSON that SQLite and Postgres can store: no NUL, infinity or half surrogate pair."""

import json
import math
from typing import Any, Final

MAX_DEPTH: Final = 20
WIDEST: Final = 2**63  # SQLite's integers are smaller
TOLD: Final = 80  # characters


def read_json(text: str | bytes) -> Any:
    """Parse untrusted JSON. Raises ValueError if it is invalid or cannot be stored."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    check_storable(value)
    return value


def compact_json(value: object) -> str:
    """Return JSON without spaces and with sorted keys: equal values give equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def quote_untrusted(value: object, limit: int | None = TOLD) -> str:
    """Return untrusted text for messages: cut to `limit` characters and, if needed, escaped."""
    text = str(value)[:limit]
    return text if text.isprintable() else ascii(text)


def check_storable(value: Any, depth: int = 0) -> None:
    """Raise ValueError if SQLite, Postgres or JSON cannot represent the value."""
    if depth > MAX_DEPTH:
        raise ValueError(f"the JSON is nested more than {MAX_DEPTH} levels deep")
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
