"""What every value is: frozen, checked where it is made, and read with patience."""

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

    def stored(self) -> dict[str, object]:
        """As JSON for a column or a file: what was set, under its stored names."""
        return self.model_dump(mode="json", exclude_unset=True)
