"""What was foretold beside what came, as SVG: on the diagonal it came as foretold."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

SIDE, LEFT, TOP, BELOW = 560.0, 60.0, 34.0, 46.0
STEP: Final = 0.1  # between lines of the grid, as a share
COLOURS: Final = {True: "#1f77b4", False: "#d62728"}  # what the interval held, and what it did not


class Point(NamedTuple):
    """A share that was foretold, with its interval, and the one that came."""

    name: str
    foretold: float
    low: float
    high: float
    found: float
    held: bool


def calibration_chart(points: Sequence[Point], title: str) -> str:
    """A whole SVG document."""
    top = max(max(point.high, point.found) for point in points)
    largest = STEP * (int(top / STEP) + 1)
    width, height = LEFT + SIDE + 20, TOP + SIDE + BELOW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="13">{escape(title)}</text>',
        *_grid(largest),
    ]
    for point in points:
        parts += _drawn(point, largest)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _grid(largest: float) -> Iterator[str]:
    for line in range(round(largest / STEP) + 1):
        share = line * STEP
        yield f'<path d="M{_x(share, largest):.1f} {TOP}v{SIDE}" stroke="#ddd"/>'
        yield f'<path d="M{LEFT} {_y(share, largest):.1f}h{SIDE}" stroke="#ddd"/>'
        label = f"{share:.0%}"
        yield f'<text x="{_x(share, largest):.1f}" y="{TOP + SIDE + 16}" text-anchor="middle">{label}</text>'
        yield f'<text x="{LEFT - 6}" y="{_y(share, largest) + 4:.1f}" text-anchor="end">{label}</text>'
    yield f'<path d="M{LEFT} {TOP + SIDE}L{LEFT + SIDE} {TOP}" stroke="#999" stroke-dasharray="4 3"/>'
    yield f'<text x="{LEFT + SIDE / 2}" y="{TOP + SIDE + 36}" text-anchor="middle">foretold</text>'
    middle = TOP + SIDE / 2
    yield f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">found</text>'


def _drawn(point: Point, largest: float) -> Iterator[str]:
    x, y, colour = _x(point.foretold, largest), _y(point.found, largest), COLOURS[point.held]
    ends = _x(point.low, largest), _x(point.high, largest)
    yield f'<path d="M{ends[0]:.1f} {y:.1f}H{ends[1]:.1f}" stroke="{colour}" stroke-opacity="0.4"/>'
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
    place = f'x="{x + 5:.1f}" y="{y - 4:.1f}"'
    yield f'<text {place} fill="#555" font-size="9">{escape(point.name)}</text>'


def _x(share: float, largest: float) -> float:
    return LEFT + SIDE * share / largest


def _y(share: float, largest: float) -> float:
    return TOP + SIDE * (1 - max(0.0, share) / largest)
