"""Names of cost models, as `operator:matmul/xgboost@3` (without `@3` the active one), and their families."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

from mallorn.core.errors import InvalidRequest

BASE: Final = "base:"
PRIVATE: Final = "private-"
_CHARS: Final = 16


@dataclass(frozen=True, slots=True)
class CostModelName:
    """Family, registered name, and the version where one is named; on a target they name one model."""

    family: str
    name: str
    version: int | None = None

    def __str__(self) -> str:
        line = f"{self.family}/{self.name}"
        return line if self.version is None else f"{line}@{self.version}"

    @property
    def is_base(self) -> bool:
        """Whether it was pre-trained for an operator, and not for a family of a job's tasks."""
        return self.family.startswith(BASE)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidRequest for anything else."""
        line, at, version = text.partition("@")
        family, _, name = line.rpartition("/")
        # More digits than a column holds are no version either.
        if not family or not name or (at and not (version.isdecimal() and len(version) < 10)):
            raise InvalidRequest(
                f"{text!r} does not name a cost model",
                hint="FAMILY/NAME@VERSION, as `mallorn costmodels list` does",
            )
        return cls(family, name, int(version) if at else None)


def base_family(op: str) -> str:
    """The line of the models that were pre-trained for an operator."""
    return f"{BASE}{op}"


def scope_of(owner: str) -> str:
    """What the families of an owner's private jobs begin with, so that nobody else's share a cost model."""
    return f"{PRIVATE}{sha256(owner.encode()).hexdigest()[:_CHARS]}:"


def in_scope(family: str, scope: str) -> bool:
    """Whether a family belongs to this scope; the empty one is everybody's."""
    return family.startswith(scope) if scope else not family.startswith(PRIVATE)
