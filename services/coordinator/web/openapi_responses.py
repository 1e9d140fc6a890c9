"""Parts of the OpenAPI document that describe the responses of routes."""

from typing import Any, Final

Schema = dict[str, object]  # JSON schema
Responses = dict[int | str, dict[str, Any]]  # by status
REF: Final = "#/components/schemas/{model}"
TEXT: Final[Schema] = {"type": "string"}
BYTES: Final[Schema] = {"type": "string", "format": "binary"}


def described(media_type: str, words: str, schema: Schema) -> Responses:
    """Return the description of a 200 response with a body of this type."""
    return {200: {"description": words, "content": {media_type: {"schema": schema}}}}
