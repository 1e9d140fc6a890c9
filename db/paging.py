"""Pages of a long list, with opaque cursors."""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mallorn.core.errors import InvalidRequest
from mallorn.core.storable_json import read_json

Item = TypeVar("Item")
MAX_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """The items of one page, and the cursor of the next page (None on the last)."""

    items: list[Item]
    cursor: str | None


def encode_cursor(*position: str | float) -> str:
    """Encode the sort key of a page's last item as text that is safe in a URL."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *types: type) -> list[Any]:
    """Decode what `encode_cursor` returned. Raises InvalidRequest unless of `types`."""
    try:
        position = read_json(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:
        position = None
    if not isinstance(position, list) or [type(part) for part in position] != list(types):
        message = "this cursor was not made by Mallorn"
        raise InvalidRequest(message, hint="leave the cursor out for the first page")
    return position


def page(rows: Sequence[Item], limit: int, position: Callable[[Item], tuple[str | float, ...]]) -> Page[Item]:
    """Build a page from up to `limit + 1` rows; the extra one shows that more follow."""
    items = list(rows[:limit])
    has_more = len(rows) > limit
    return Page(items, encode_cursor(*position(items[-1])) if has_more else None)
