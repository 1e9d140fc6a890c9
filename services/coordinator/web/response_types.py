"""Response types (pages and lists), their OpenAPI descriptions, and bounds of integers."""

from typing import Annotated, Any, Final, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel

from mallorn.db.paging import MAX_LIMIT

Schema = dict[str, object]  # JSON schema
Responses = dict[int | str, dict[str, Any]]  # by status
REF: Final = "#/components/schemas/{model}"
TEXT: Final[Schema] = {"type": "string"}
BYTES: Final[Schema] = {"type": "string", "format": "binary"}


def describe_response(media_type: str, words: str, schema: Schema) -> Responses:
    """Return the description of a 200 response with a body of this type."""
    return {200: {"description": words, "content": {media_type: {"schema": schema}}}}


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
