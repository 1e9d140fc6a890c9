"""Candidates, and sketches: schedule traces whose open decisions candidates decide."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from pydantic import JsonValue, TypeAdapter

#: Annotation of a program's root block in which a kind of sketch describes itself (JSON).
SKETCH_FACTS: Final = "mallorn.sketch"


class ChoiceKind(StrEnum):
    """Kind of a free choice in a sketch."""

    TILE = "tile"  # factors whose product is `extent`; the last is at most `limit`
    CATEGORICAL = "categorical"  # an index below `options`
    LOCATION = "location"  # one of the values in `values` (loop indices, -1 root, -2 inline)


@dataclass(frozen=True, slots=True)
class Choice:
    """A sampling instruction in a sketch's trace, whose decision is still open."""

    kind: ChoiceKind
    width: int  # number of integers that the choice has in the decision vector
    extent: int = 0
    limit: int = 0
    values: tuple[int, ...] = ()  # allowed values: indices for CATEGORICAL, loop positions for LOCATION
    labels: tuple[int, ...] = ()  # values that CATEGORICAL indices select (unroll steps, ...)
    weights: tuple[float, ...] = ()  # sampling probabilities over `values`
    suggested: tuple[int, ...] = ()  # decisions that the sketch's rule suggests, if any
    inner_multiple: tuple[int, int] | None = None  # (index, n): n divides prod([index:])


@dataclass(frozen=True, slots=True)
class Sketch:
    """A schedule trace with open decisions: `trace` is its JSON, `key` a hash of that."""

    key: str
    trace: str
    choices: tuple[Choice, ...]
    ordinal: int = 0  # index in the space that generated it

    @property
    def decision_count(self) -> int:
        return sum(choice.width for choice in self.choices)

    @property
    def decision_slices(self) -> list[tuple[slice, Choice]]:
        """Pairs of a choice's slice of the decision vector and the choice itself."""
        starts = accumulate((choice.width for choice in self.choices), initial=0)
        pairs = zip(starts, self.choices, strict=False)
        return [(slice(start, start + choice.width), choice) for start, choice in pairs]

    @property
    def facts(self) -> Any:
        """The sketch's description of itself (JSON object), see `read_sketch_facts`."""
        return read_sketch_facts(self.trace)

    def candidates(self, rows: Iterable[Sequence[int]]) -> list["Candidate"]:
        """Return the candidates with these decision vectors."""
        return [Candidate(self.key, tuple(row)) for row in rows]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sketch and its decisions, from which the complete trace follows."""

    sketch: str  # Sketch.key
    decisions: tuple[int, ...]

    @property
    def key(self) -> str:
        """Hash of sketch and decisions, equal on all hosts; unique in its workload."""
        text = f"{self.sketch}:{','.join(map(str, self.decisions))}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=1024)
def read_sketch_facts(trace: str) -> Any:
    """Return the JSON object in which a kind of sketch describes itself: its name, the
    names of its choices, and what a model of its time needs. It is empty for sketches of
    MetaSchedule's and DLight's rules."""
    if SKETCH_FACTS in trace:
        for kind, inputs, attributes, _ in json.loads(trace):
            if kind == "Annotate" and attributes == [SKETCH_FACTS]:
                return json.loads(inputs[1][1:-1])  # TVM puts quotes around a string
    return {}


_CHOICES: Final = TypeAdapter(tuple[Choice, ...])
_SKETCH: Final = TypeAdapter(Sketch)


def pack_choices(choices: Sequence[Choice]) -> list[JsonValue]:
    """Convert choices to JSON values, for a column or a file."""
    rows: list[JsonValue] = _CHOICES.dump_python(tuple(choices), mode="json", exclude_none=True)
    return rows


def unpack_choices(rows: object) -> tuple[Choice, ...]:
    """Parse choices that this or an earlier version packed. Raises ValueError."""
    return _CHOICES.validate_python(rows)


def unpack_sketch(fields: object) -> Sketch:
    """Parse a sketch from JSON values. Raises ValueError if they are invalid."""
    return _SKETCH.validate_python(fields)
