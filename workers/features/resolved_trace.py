"""A sketch's trace with its sampling resolved: the numbers of each step that decisions fill in."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from costmodels.base import Column
from searchers.space import ChoiceKind, Sketch
from searchers.tile_factorizations import Rows

_SAMPLES = "Sample"


@dataclass(frozen=True, slots=True)
class Number:
    """A constant, or the value of a column of the decision vector."""

    constant: float = 0.0
    column: int | None = None
    labels: tuple[int, ...] = ()

    def of(self, rows: Rows) -> Column:
        """The value for each decision vector."""
        if self.column is None:
            return np.full(len(rows), self.constant)
        values = rows[:, self.column]
        return np.array(self.labels, dtype=np.float64)[values] if self.labels else values.astype(np.float64)


@dataclass(frozen=True, slots=True)
class TraceStep:
    """An instruction that is not sampling; inputs are names of blocks and loops, texts, or numbers."""

    kind: str
    inputs: tuple[str | Number, ...]
    attrs: tuple[Any, ...]
    outputs: tuple[str, ...]

    @property
    def numbers(self) -> list[Number]:
        return [given for given in self.inputs if isinstance(given, Number)]

    @property
    def names(self) -> list[str]:
        return [given for given in self.inputs if isinstance(given, str)]


@lru_cache(maxsize=1024)
def steps_of(sketch: Sketch) -> tuple[TraceStep, ...]:
    """The steps of a sketch in order, without its sampling instructions."""
    traced = sketch.trace.startswith("[")  # synthetic spaces have names instead of traces, or nothing
    instructions = json.loads(sketch.trace) if traced else list(_made_up(sketch))
    sampled: dict[str, Number] = {}
    choices = iter(sketch.choices)
    column = 0
    steps: list[TraceStep] = []
    for kind, inputs, attrs, outputs in instructions:
        if kind.startswith(_SAMPLES):
            choice = next(choices)
            sampled |= {name: Number(0.0, column + at, choice.labels) for at, name in enumerate(outputs)}
            column += choice.width
        else:
            given = tuple(_given(inputs, sampled))
            steps.append(TraceStep(kind, given, tuple(attrs), tuple(outputs)))
    return tuple(steps)


def _given(inputs: list[Any], sampled: dict[str, Number]) -> Iterator[str | Number]:
    """The inputs in one list; a missing factor is inferred."""
    for value in inputs:
        if isinstance(value, list):
            yield from _given(value, sampled)
        elif isinstance(value, str):
            yield sampled.get(value, value)
        else:
            yield Number(1.0 if value is None else float(value))


def _made_up(sketch: Sketch) -> Iterator[list[Any]]:
    """Steps for a sketch without a trace: one block, tiled axis by axis."""
    axes = [f"l{at}" for at, choice in enumerate(sketch.choices) if choice.kind is ChoiceKind.TILE]
    yield ["GetSBlock", [], ["main", "main"], ["b0"]]
    yield ["GetSBlock", [], ["root", "main"], ["b1"]]
    yield ["GetLoops", ["b0"], [], axes]
    for at, choice in enumerate(sketch.choices):
        drawn = [f"v{at}.{level}" for level in range(choice.width)]
        yield [f"{_SAMPLES}{choice.kind}", [], [], drawn]
        match choice.kind:
            case ChoiceKind.TILE:
                yield ["Split", [f"l{at}", *drawn], [], [f"l{name}" for name in drawn]]
            case ChoiceKind.CATEGORICAL:
                yield ["Annotate", ["b1", *drawn], ["meta_schedule.unroll_explicit"], []]
            case ChoiceKind.LOCATION:
                yield ["ComputeAt", ["b0", *drawn], [], []]
