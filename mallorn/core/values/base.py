"""Base class of all values: immutable, validated, and tolerant of other versions' fields."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator


class Value(BaseModel):
    """Base class of values: unknown keys are ignored, and fields with a default are optional.

    Code that stores a value writes `stored()`, which omits fields that were not set.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )

    #: Names that earlier versions gave to fields in JSON, with the names of today.
    OLD_NAMES: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, data: Any) -> Any:
        if not cls.OLD_NAMES or not isinstance(data, Mapping):
            return data
        renamed = {new: data[old] for old, new in cls.OLD_NAMES.items() if old in data}
        return renamed | {name: value for name, value in data.items() if name not in cls.OLD_NAMES}

    @classmethod
    def from_row(cls, row: object, **values: object) -> Self:
        """Build a value from a row's columns of the same names; `values` replace columns."""
        columns = {name: getattr(row, name) for name in cls.model_fields if name not in values}
        return cls.model_validate(columns | values)

    def to_stored_json(self) -> dict[str, object]:
        """Return the fields that were set, as JSON under their stored names."""
        return self.model_dump(mode="json", exclude_unset=True)
