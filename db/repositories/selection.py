"""A filter of measurements by target, operator, model and date."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Selection:
    """All fields that are not None must match; without any, every measurement does."""

    target: str | None = None  # canonical JSON
    op: str | None = None  # Workload.op
    model: str | None = None  # the SHA-256 of the network whose job measured it
    since: float | None = None  # seconds since the epoch, included
    until: float | None = None  # not included

    def as_dict(self) -> dict[str, object]:
        """The fields that are set, for a JSON column."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The selection that as_dict wrote."""
        return cls(**values)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.as_dict().items()) or "everything"
