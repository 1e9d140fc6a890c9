"""Base class of all values: immutable, validated, and tolerant of other versions' fields."""

from typing import Self

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """Base class of values: unknown keys are ignored, and fields with a default are optional.

    Code that stores a value writes `to_stored_json()`, which omits unset fields.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )

    @classmethod
    def from_row(cls, row: object, **values: object) -> Self:
        """Build a value from a row's columns of the same names; `values` replace columns."""
        columns = {name: getattr(row, name) for name in cls.model_fields if name not in values}
        return cls.model_validate(columns | values)

    def to_stored_json(self) -> dict[str, object]:
        """Return the fields that were set, as JSON under their stored names."""
        return self.model_dump(mode="json", exclude_unset=True)
