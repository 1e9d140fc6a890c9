"""Call of a child's method, and the JSON in which typed values cross to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from pydantic import ConfigDict, create_model

_CONFIG: Final = ConfigDict(
    extra="forbid",
    protected_namespaces=(),
    ser_json_inf_nan="constants",
    ser_json_bytes="base64",
    val_json_bytes="base64",
)


class Fields:
    """Named values of given types. What does not fit its type is a ValueError on the side that sends it."""

    def __init__(self, name: str, types: Mapping[str, object]) -> None:
        required: dict[str, Any] = {field: (kind, ...) for field, kind in types.items()}
        self._model: Any = create_model(name, __config__=_CONFIG, **required)

    def pack(self, values: Mapping[str, object]) -> bytes:
        """The values as one JSON object."""
        text: str = self._model.model_construct(**values).model_dump_json(
            warnings="error", exclude_unset=True
        )
        return text.encode()

    def unpack(self, body: bytes) -> dict[str, Any]:
        """The values, each of its type again."""
        read = self._model.model_validate_json(body)
        return {name: getattr(read, name) for name in self._model.model_fields}


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A method and what it is given, ready to be sent."""

    method: str
    params: bytes
    limit_sec: float
    read: Callable[[bytes], R]

    def within(self, limit_sec: float) -> "Call[R]":
        """The same with another time limit."""
        return replace(self, limit_sec=limit_sec)
