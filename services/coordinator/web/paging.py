"""Pages and lists of the API, and the largest integers that database columns can hold."""

from typing import Annotated, Final, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel

from db.paging import MAX_LIMIT

MAX_INT: Final = 2**31 - 1  # also the largest seed of TVM
MAX_BIG_INT: Final = 2**63 - 1
Item = TypeVar("Item")


class PageOut(BaseModel, Generic[Item]):
    """One page of items, and the cursor of the next page; null on the last page."""

    items: list[Item]
    next_cursor: str | None


class ListOut(BaseModel, Generic[Item]):
    """All items, without pages."""

    items: list[Item]


CursorQuery = Annotated[str | None, Query(description="`next_cursor` of the previous page.")]
LimitQuery = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum items per page.")]
