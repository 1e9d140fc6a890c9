"""Describe the steps of a schedule, with their numbers, as a table (as TLP does)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np

from mallorn.costmodels.views import PRIMITIVES
from mallorn.searchers.space import Matrix, Sketch
from mallorn.searchers.tile_factorizations import Rows
from mallorn.workers.features.feature_extractor import Extractor
from mallorn_research.features.resolved_trace import Number, TraceStep, steps_of

LINES, COLUMNS = PRIMITIVES.shape

KINDS: Final = {
    "Split": 1,
    "Fuse": 2,
    "Reorder": 3,
    "ComputeAt": 4,
    "ReverseComputeAt": 5,
    "ComputeInline": 6,
    "ReverseComputeInline": 6,
    "CacheRead": 7,
    "CacheWrite": 7,
    "RFactor": 8,
    "meta_schedule.parallel": 9,
    "meta_schedule.vectorize": 10,
    "meta_schedule.unroll_explicit": 11,
    "Annotate": 12,
}
OTHER: Final = 13
BLOCK: Final = 14
FIRST_NUMBER: Final = 15
NUMBERS: Final = 8
DECIDED: Final = 23
SAYS_NOTHING: Final = frozenset({"GetSBlock", "GetLoops", "GetConsumers", "GetProducers", "Unannotate"})


class Primitives(Extractor):
    """Extracts the features `primitives`: a line with the workload's descriptors, then a
    line for each step of the trace except those that only look up blocks or loops."""

    view = PRIMITIVES

    def extract_rows(self, sketch: Sketch, descriptors: Sequence[float], rows: Rows) -> Matrix:
        constant, entries = _primitive_table(sketch)
        matrix = np.tile(constant, (len(rows), 1))
        scalars = descriptors[:NUMBERS]
        matrix[:, FIRST_NUMBER : FIRST_NUMBER + len(scalars)] = scalars
        for column, number in entries:
            matrix[:, column] = _scaled(number.evaluate(rows))
        return matrix


@lru_cache(maxsize=1024)
def _primitive_table(sketch: Sketch) -> tuple[Matrix, Sequence[tuple[int, Number]]]:
    """Return a sketch's constant features as a flat row, and the columns for decisions."""
    table = np.zeros((LINES, COLUMNS), dtype=np.float32)
    table[0, 0] = 1
    entries: list[tuple[int, Number]] = []
    names = _Names()
    line = 1
    for step in steps_of(sketch):
        names.add_outputs(step)
        if step.kind in SAYS_NOTHING or line == LINES:
            continue
        row = table[line]
        row[0] = 1
        annotated = step.kind == "Annotate"
        kind = KINDS.get(str(step.attrs[0]), KINDS["Annotate"]) if annotated else KINDS.get(step.kind, OTHER)
        row[kind] = 1
        row[BLOCK] = max((names.blocks[name] for name in step.names if name in names.blocks), default=0)
        numbers = names.numbers_of_step(step)
        row[DECIDED] = any(number.column is not None for number in numbers)
        for column, number in enumerate(numbers[:NUMBERS], start=FIRST_NUMBER):
            if number.column is None:
                row[column] = _scaled(np.array(number.constant))
            else:
                entries.append((line * COLUMNS + column, number))
        line += 1
    return table.reshape(-1), entries


@dataclass
class _Names:
    """Numbers blocks and loops in order. The parts of a split loop share its number."""

    blocks: dict[str, int] = field(default_factory=dict)
    loops: dict[str, tuple[int, int]] = field(default_factory=dict)
    axes: int = 0

    def add_outputs(self, step: TraceStep) -> None:
        source = next((self.loops[name] for name in step.names if name in self.loops), None)
        for level, name in enumerate(step.outputs):
            if name.startswith("b"):
                self.blocks[name] = len(self.blocks) + 1
            elif step.kind == "Split" and source is not None:
                self.loops[name] = source[0], level
            else:
                self.axes += 1
                self.loops[name] = self.axes, 0

    def numbers_of_step(self, step: TraceStep) -> list[Number]:
        loops = [number for name in step.names if name in self.loops for number in self.loops[name]]
        integers = [value for value in step.attrs if type(value) is int]
        return [*map(Number, loops), *step.numbers, *map(Number, integers)]


def _scaled(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Matrix:
    return np.asarray(np.sign(values) * np.log2(1 + np.abs(values)), dtype=np.float32)
