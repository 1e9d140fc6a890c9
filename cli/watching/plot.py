"""A job's best-so-far curve in characters."""

import math
from collections.abc import Sequence
from typing import Final

from cli.terminal.output import latency
from mallorn.results.history import CurvePoint, at_trials

HEIGHT: Final = 6
LEAST_WIDTH: Final = 20
MARGIN: Final = 14  # the latencies and the axis on the left
# Each character of this block is a field of two by four dots; the bits of its columns, from above.
BRAILLE: Final = 0x2800
DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
COLUMNS, ROWS = len(DOTS), len(DOTS[0])


def plot(points: Sequence[CurvePoint], width: int, height: int = HEIGHT) -> list[str]:
    """Lines of text: weighted total (a logarithmic axis) against trials. None for fewer than two points."""
    if len(points) < 2 or width < MARGIN + LEAST_WIDTH:
        return []
    last, fields = points[-1].trials, width - MARGIN
    slowest, fastest = points[0].total_us, points[-1].total_us
    columns = fields * COLUMNS
    values = [at_trials(points, round(last * at / (columns - 1))) for at in range(columns)]
    canvas = _draw([_level(value, slowest, fastest, height * ROWS) for value in values], height)
    labels = [latency(slowest), *[""] * (height - 2), latency(fastest)]
    lines = [f"{label:>{MARGIN - 2}} ┤{row}" for label, row in zip(labels, canvas, strict=True)]
    return [*lines, f"{'':>{MARGIN}}0{f'{last} trials':>{fields - 1}}"]


def _level(value: float | None, slowest: float, fastest: float, levels: int) -> int | None:
    """How far from the top, in dots; a job that gained nothing is a line at the bottom."""
    if value is None:
        return None
    if slowest == fastest:
        return levels - 1
    return round((levels - 1) * math.log(slowest / value) / math.log(slowest / fastest))


def _draw(levels: Sequence[int | None], height: int) -> list[str]:
    """Fields of dots, joined into a line that falls in steps."""
    fields = [[0] * (len(levels) // COLUMNS) for _ in range(height)]
    before = None
    for column, level in enumerate(levels):
        if level is None:
            continue
        for dot in range(min(level, level if before is None else before), level + 1):
            fields[dot // ROWS][column // COLUMNS] |= DOTS[column % COLUMNS][dot % ROWS]
        before = level
    return ["".join(chr(BRAILLE + bits) for bits in row) for row in fields]
