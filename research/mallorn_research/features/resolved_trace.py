"""Replace the sampled values in a sketch's trace by columns of the decision vector."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mallorn.costmodels.base import Column
from mallorn.searchers.space import ChoiceKind, Sketch
from mallorn.searchers.tile_factorizations import Rows

_SAMPLES = "Sample"


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a trace: a constant, or the value in a column of the decision vector.
    With `labels`, that value is an index into them."""

    constant: float = 0.0
    column: int | None = None
    labels: tuple[int, ...] = ()

    def evaluate(self, rows: Rows) -> Column:
        """Return the number's value in each of the decision vectors `rows`."""
        if self.column is None:
            return np.full(len(rows), self.constant)
        values = rows[:, self.column]
        return np.array(self.labels, dtype=np.float64)[values] if self.labels else values.astype(np.float64)


@dataclass(frozen=True, slots=True)
class TraceStep:
    """An instruction of a trace that samples nothing. Its inputs are names of blocks or
    loops, other strings, or numbers."""

    kind: str
    inputs: tuple[str | Number, ...]
    attrs: tuple[Any, ...]
    outputs: tuple[str, ...]

    @property
    def numbers(self) -> list[Number]:
        return [value for value in self.inputs if isinstance(value, Number)]

    @property
    def names(self) -> list[str]:
        return [value for value in self.inputs if isinstance(value, str)]


@lru_cache(maxsize=1024)
def steps_of(sketch: Sketch) -> tuple[TraceStep, ...]:
    """Return a sketch's instructions in order, without those that sample decisions."""
    has_trace = sketch.trace.startswith("[")  # synthetic spaces have a name or nothing there
    instructions = json.loads(sketch.trace) if has_trace else _synthetic_steps(sketch)
    sampled: dict[str, Number] = {}
    choices = iter(sketch.choices)
    column = 0
    steps: list[TraceStep] = []
    for kind, inputs, attrs, outputs in instructions:
        if kind.startswith(_SAMPLES):
            choice = next(choices)
            sampled |= {name: Number(0.0, column + i, choice.labels) for i, name in enumerate(outputs)}
            column += choice.width
        else:
            resolved = tuple(_resolved_inputs(inputs, sampled))
            steps.append(TraceStep(kind, resolved, tuple(attrs), tuple(outputs)))
    return tuple(steps)


def _resolved_inputs(inputs: list[Any], sampled: dict[str, Number]) -> Iterator[str | Number]:
    """Flatten inputs, and turn sampled names and numbers into `Number` (1 for None)."""
    for value in inputs:
        if isinstance(value, list):
            yield from _resolved_inputs(value, sampled)
        elif isinstance(value, str):
            yield sampled.get(value, value)
        else:
            yield Number(1.0 if value is None else float(value))


def _synthetic_steps(sketch: Sketch) -> Iterator[list[Any]]:
    """Yield instructions for a sketch that has no trace: one block, tiled axis by axis."""
    axes = [f"l{index}" for index, choice in enumerate(sketch.choices) if choice.kind is ChoiceKind.TILE]
    yield ["GetSBlock", [], ["main", "main"], ["b0"]]
    yield ["GetSBlock", [], ["root", "main"], ["b1"]]
    yield ["GetLoops", ["b0"], [], axes]
    for index, choice in enumerate(sketch.choices):
        samples = [f"v{index}.{level}" for level in range(choice.width)]
        yield [f"{_SAMPLES}{choice.kind}", [], [], samples]
        match choice.kind:
            case ChoiceKind.TILE:
                yield ["Split", [f"l{index}", *samples], [], [f"l{name}" for name in samples]]
            case ChoiceKind.CATEGORICAL:
                yield ["Annotate", ["b1", *samples], ["meta_schedule.unroll_explicit"], []]
            case ChoiceKind.LOCATION:
                yield ["ComputeAt", ["b0", *samples], [], []]
