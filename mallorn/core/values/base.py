"""What every value is: frozen, checked where it is made, and read with patience."""

from typing import Self

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A value. Keys that this version does not know are passed over; those with a default may be missing.

    Who writes one to be stored dumps what was set (`stored`), so that JSON of all versions looks alike.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,
    )

    @classmethod
    def from_row(cls, row: object, **others: object) -> Self:
        """A row as a value: its columns of the same names, and the fields that it does not have."""
        columns = {name: getattr(row, name) for name in cls.model_fields if name not in others}
        return cls.model_validate(columns | others)

    def stored(self) -> dict[str, object]:
        """As JSON for a column or a file: what was set, under its stored names."""
        return self.model_dump(mode="json", exclude_unset=True)
