"""Curves as SVG: best so far over the optimum by trials, a panel a kind of arena."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import log
from typing import Final

Curves = Mapping[str, Sequence[float]]  # by label: a ratio after each trial

WIDTH, HEIGHT = 330.0, 250.0
LEFT, TOP, GAP, LEGEND = 46.0, 34.0, 24.0, 130.0
RATIOS: Final = (
    1.005,
    1.01,
    1.02,
    1.05,
    1.1,
    1.2,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
)  # the first stands for all below it
COLOURS: Final = (
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b",
    "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#003f5c", "#a05195",
)  # fmt: skip


def chart(panels: Mapping[str, Curves], title: str) -> str:
    """A whole SVG document. Labels have the same colour in every panel."""
    labels = sorted({label for curves in panels.values() for label in curves})
    colours = {label: COLOURS[at % len(COLOURS)] for at, label in enumerate(labels)}
    width = LEFT + len(panels) * (WIDTH + GAP + LEFT) + LEGEND
    height = max(TOP + HEIGHT + 44, TOP + 18 * len(labels) + 10)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
        f'<text x="{LEFT}" y="14" font-size="13">{escape(title)}</text>',
    ]
    for at, (name, curves) in enumerate(panels.items()):
        parts += _panel(LEFT + at * (WIDTH + GAP + LEFT), name, curves, colours)
    parts += _legend(width - LEGEND, colours)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(left: float, name: str, curves: Curves, colours: Mapping[str, str]) -> Iterator[str]:
    last = max(len(curve) for curve in curves.values())
    highest = max(max(curve) for curve in curves.values())
    top = next((ratio for ratio in RATIOS[1:] if ratio >= highest), RATIOS[-1])
    yield f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>'
    yield f'<text x="{left + WIDTH / 2}" y="{TOP - 6}" text-anchor="middle">{escape(name)}</text>'
    for ratio in (each for each in RATIOS if each <= top):
        y = TOP + _y(ratio, top)
        yield f'<path d="M{left} {y:.1f}h{WIDTH}" stroke="#ddd"/>'
        yield f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end">{ratio:g}</text>'
    for trial in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        if trial <= last:
            x = left + _x(trial, last)
            yield f'<text x="{x:.1f}" y="{TOP + HEIGHT + 14}" text-anchor="middle">{trial}</text>'
    yield f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 30}" text-anchor="middle">trials</text>'
    for label, curve in curves.items():
        points = (
            f"{left + _x(at + 1, last):.1f},{TOP + _y(ratio, top):.1f}" for at, ratio in enumerate(curve)
        )
        stroke = f'fill="none" stroke="{colours[label]}" stroke-width="1.5"'
        yield f'<polyline {stroke} points="{" ".join(points)}"/>'


def _legend(left: float, colours: Mapping[str, str]) -> Iterator[str]:
    for at, (label, colour) in enumerate(colours.items()):
        y = TOP + 10 + 18 * at
        yield f'<path d="M{left} {y}h18" stroke="{colour}" stroke-width="2"/>'
        yield f'<text x="{left + 23}" y="{y + 4}">{escape(label)}</text>'


def _x(trial: float, last: int) -> float:
    return WIDTH * log(trial) / log(max(2, last))


def _y(ratio: float, top: float) -> float:
    """By what is left above the optimum: 5 % and 1 % are as far apart as 50 % and 10 %."""
    least = RATIOS[0] - 1
    above = max(least, min(ratio, top) - 1)
    return HEIGHT * (1 - log(above / least) / log((top - 1) / least))
