"""What is searched: sketches with free choices, and candidates, which take them; their only JSON codec."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Final

from pydantic import JsonValue, TypeAdapter


class ChoiceKind(StrEnum):
    """What a free choice of a sketch is about."""

    TILE = "tile"  # factors whose product is `extent`; the last is at most `limit`
    CATEGORICAL = "categorical"  # an index below `options`
    LOCATION = "location"  # one of the values in `values` (loop indices, -1 root, -2 inline)


@dataclass(frozen=True, slots=True)
class Choice:
    """One sampling instruction of a sketch's trace."""

    kind: ChoiceKind
    width: int  # how many integers of the decision vector it owns
    extent: int = 0
    limit: int = 0
    values: tuple[int, ...] = ()  # allowed values: indices for CATEGORICAL, loop positions for LOCATION
    labels: tuple[int, ...] = ()  # what the indices of a CATEGORICAL stand for (unroll steps, ...)
    weights: tuple[float, ...] = ()  # sampling probabilities over `values`
    suggested: tuple[int, ...] = ()  # what the rule that made the sketch would choose, if it says so
    inner_multiple: tuple[int, int] | None = None  # (place, n): from there on factors multiply to n * any


@dataclass(frozen=True, slots=True)
class Sketch:
    """A schedule without decisions. `trace` is its JSON; `key` the hash of that."""

    key: str
    trace: str
    choices: tuple[Choice, ...]
    ordinal: int = 0  # its place in the space that generated it

    @property
    def width(self) -> int:
        return sum(choice.width for choice in self.choices)

    @property
    def places(self) -> list[tuple[slice, Choice]]:
        """Each choice, behind its columns of a decision vector."""
        starts = accumulate((choice.width for choice in self.choices), initial=0)
        pairs = zip(starts, self.choices, strict=False)
        return [(slice(start, start + choice.width), choice) for start, choice in pairs]

    def candidates(self, rows: Iterable[Sequence[int]]) -> list["Candidate"]:
        """The candidates with these decision vectors."""
        return [Candidate(self.key, tuple(row)) for row in rows]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Sketch + decisions, from which the full trace follows exactly."""

    sketch: str  # Sketch.key
    decisions: tuple[int, ...]

    @property
    def key(self) -> str:
        """Names the candidate within its workload, alike on every host."""
        text = f"{self.sketch}:{','.join(map(str, self.decisions))}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


_CHOICES: Final = TypeAdapter(tuple[Choice, ...])
_SKETCH: Final = TypeAdapter(Sketch)


def pack_choices(choices: Sequence[Choice]) -> list[JsonValue]:
    """Choices as plain values, for a column or a file."""
    packed: list[JsonValue] = _CHOICES.dump_python(tuple(choices), mode="json", exclude_none=True)
    return packed


def unpack_choices(packed: object) -> tuple[Choice, ...]:
    """What pack_choices packed, or an earlier version; raises ValueError for anything else."""
    return _CHOICES.validate_python(packed)


def unpack_sketch(packed: object) -> Sketch:
    """A sketch whose fields are plain values; raises ValueError for anything else."""
    return _SKETCH.validate_python(packed)
