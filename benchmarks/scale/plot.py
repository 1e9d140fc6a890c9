"""Draws candidates a second by devices: `python -m benchmarks.scale.plot --svg FILE LABEL=JSON ...`.

A panel for each time of a candidate, with a curve for each label and one for devices that never wait.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Final

WIDTH, HEIGHT, LEFT, TOP, GAP = 300.0, 240.0, 52.0, 40.0, 70.0
COLOURS: Final = ("#7f7f7f", "#d62728", "#1f77b4", "#2ca02c")
IDEAL: Final = "no device waits"
Curve = Mapping[int, float]  # candidates a second by devices


def read_curves(files: Mapping[str, Sequence[Path]]) -> dict[float, dict[str, Curve]]:
    """Return the curves of each label by seconds of a candidate; labels are in order."""
    curves: dict[float, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for label, paths in files.items():
        for cell in (cell for path in paths for cell in json.loads(path.read_text())["cells"]):
            sec, devices = cell["candidate_sec"], cell["devices"]
            if sec:
                curves[sec][IDEAL][devices] = devices / sec
            curves[sec][label][devices] = cell["candidates_per_sec"]
    return {sec: dict(curves[sec]) for sec in sorted(curves)}


def chart(panels: Mapping[float, Mapping[str, Curve]]) -> str:
    """Return an SVG document with logarithmic axes; a label has one colour in all panels."""
    labels = list(dict.fromkeys(label for curves in panels.values() for label in curves))
    colours = dict(zip([IDEAL, *(label for label in labels if label != IDEAL)], COLOURS, strict=False))
    width, height = LEFT + len(panels) * (WIDTH + GAP), TOP + HEIGHT + 64
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
    ]
    for at, (sec, curves) in enumerate(panels.items()):
        parts += _draw_panel(LEFT + at * (WIDTH + GAP), f"{sec:g} s a candidate", curves, colours)
    for at, (label, colour) in enumerate(colours.items()):
        x, y = LEFT + 150 * at, height - 12
        parts.append(f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 23}" y="{y}">{label}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw_panel(
    left: float, title: str, curves: Mapping[str, Curve], colours: Mapping[str, str]
) -> Iterator[str]:
    devices = sorted({count for curve in curves.values() for count in curve})
    rates = [rate for curve in curves.values() for rate in curve.values()]
    ticks = [10.0**n * one for n in range(-2, 5) for one in (1, 2, 5)]
    lowest = max((tick for tick in ticks if tick <= min(rates)), default=ticks[0])
    highest = min((tick for tick in ticks if tick >= max(rates)), default=ticks[-1])

    def x(count: int) -> float:
        return left + WIDTH * log(count / devices[0]) / max(log(devices[-1] / devices[0]), 1e-9)

    def y(rate: float) -> float:
        return TOP + HEIGHT * (1 - log(rate / lowest) / max(log(highest / lowest), 1e-9))

    yield f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>'
    yield f'<text x="{left + WIDTH / 2}" y="{TOP - 8}" text-anchor="middle">{title}</text>'
    for tick in (tick for tick in ticks if lowest <= tick <= highest):
        yield f'<path d="M{left} {y(tick):.1f}h{WIDTH}" stroke="#ddd"/>'
        yield f'<text x="{left - 4}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
    for count in devices:
        yield f'<text x="{x(count):.1f}" y="{TOP + HEIGHT + 14}" text-anchor="middle">{count}</text>'
    where = f'x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 30}" text-anchor="middle"'
    yield f"<text {where}>devices; candidates a second</text>"
    for label, curve in curves.items():
        points = [f"{x(count):.1f},{y(rate):.1f}" for count, rate in sorted(curve.items())]
        dashes = ' stroke-dasharray="4 3"' if label == IDEAL else ""
        yield f'<polyline fill="none" stroke="{colours[label]}"{dashes} points="{" ".join(points)}"/>'
        for point in points:
            at_x, at_y = point.split(",")
            yield f'<circle cx="{at_x}" cy="{at_y}" r="2.5" fill="{colours[label]}"/>'


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="LABEL=JSON", help="raw figures of benchmarks.scale")
    parser.add_argument("--svg", type=Path, required=True)
    options = parser.parse_args()
    files: dict[str, list[Path]] = defaultdict(list)
    for label, _, path in (word.partition("=") for word in options.files):
        files[label].append(Path(path))
    options.svg.write_text(chart(read_curves(files)))


if __name__ == "__main__":
    main()
