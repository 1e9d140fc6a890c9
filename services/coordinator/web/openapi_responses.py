"""What routes answer, in the words of the API's description."""

from typing import Any, Final

Schema = dict[str, object]  # JSON schema
Responses = dict[int | str, dict[str, Any]]  # by status
REF: Final = "#/components/schemas/{model}"
TEXT: Final[Schema] = {"type": "string"}
BYTES: Final[Schema] = {"type": "string", "format": "binary"}


def described(media_type: str, words: str, schema: Schema) -> Responses:
    """A success whose body is of this type."""
    return {200: {"description": words, "content": {media_type: {"schema": schema}}}}
