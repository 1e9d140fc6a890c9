"""Cost-model names: `operator:matmul/xgboost@3`, or without `@3` for the active version."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

from mallorn.core.errors import InvalidRequest

BASE: Final = "base:"
PRIVATE: Final = "private-"
_CHARS: Final = 16


@dataclass(frozen=True, slots=True)
class CostModelName:
    """A cost model's family, registered name and optional version; unique for a target."""

    family: str
    name: str
    version: int | None = None

    def __str__(self) -> str:
        line = f"{self.family}/{self.name}"
        return line if self.version is None else f"{line}@{self.version}"

    @property
    def is_base(self) -> bool:
        """Return whether this was pretrained for an operator, not for a job's tasks."""
        return self.family.startswith(BASE)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse FAMILY/NAME or FAMILY/NAME@VERSION. Raises InvalidRequest otherwise."""
        line, separator, version = text.partition("@")
        family, _, name = line.rpartition("/")
        # Ten digits or more may not fit the database column.
        if not family or not name or (separator and not (version.isdecimal() and len(version) < 10)):
            message = f"{text!r} does not name a cost model"
            raise InvalidRequest(message, hint="FAMILY/NAME@VERSION, as `mallorn costmodels list` does")
        return cls(family, name, int(version) if separator else None)


def base_family(op: str) -> str:
    """Return the cost-model family that holds the models pretrained for an operator."""
    return f"{BASE}{op}"


def private_family_prefix(owner: str) -> str:
    """Return the prefix of the families of an owner's private jobs."""
    return f"{PRIVATE}{sha256(owner.encode()).hexdigest()[:_CHARS]}:"
