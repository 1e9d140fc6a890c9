"""The best-so-far curve as inline SVG."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mallorn.report.html_elements import Html, el
from mallorn.results.best_so_far_curve import CurvePoint
from mallorn.wording.format_values import format_duration, format_latency

STEPS: Final = (1, 2, 5)
WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 80, 16, 14, 40
# A line farther from the curve (as a factor) would flatten it, so the chart names it as text.
APART: Final = 4.0
Read = Callable[[CurvePoint], float]


def even_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers from `low` to `high`, evenly spaced."""
    if high <= low:
        return [low]
    rough_step = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough_step))
    step = next(step * power for step in (*STEPS, 10) if step * power >= rough_step)
    return [multiple * step for multiple in range(math.ceil(low / step), math.floor(high / step) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten in a range; even ticks if fewer than two fit."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in STEPS]
    ticks = [tick for tick in ticks if low <= tick <= high]
    # At most seven of them remain.
    return ticks[:: math.ceil(len(ticks) / 7)] if len(ticks) >= 2 else even_ticks(low, high)


def padded(values: Iterable[float]) -> tuple[float, float]:
    """Return the range of the values with a margin on both sides, for a logarithmic axis."""
    value_list = list(values)
    low, high = min(value_list), max(value_list)
    margin = max((high / low) ** 0.08, 1.01)
    return low / margin, high * margin


@dataclass(frozen=True)
class XAxis:
    """X axis of a chart: its title, and functions that read and format a point's value."""

    title: str
    read: Read
    words: Callable[[float], str]


TRIALS: Final = XAxis("trials", lambda point: point.trials, lambda value: f"{value:,.0f}")
SECONDS: Final = XAxis("time since submit", lambda point: point.sec, format_duration)


@dataclass(frozen=True)
class _Frame:
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * value / self.right, 1)

    def y(self, value: float) -> float:
        share = math.log(self.high / value) / math.log(self.high / self.low)
        return round(TOP + (HEIGHT - TOP - BOTTOM) * share, 1)


def chart(
    points: Sequence[CurvePoint], axis: XAxis, beside_us: Mapping[str, float] | None = None
) -> Html | None:
    """Draw the curve on a log axis, and lines at `beside_us`; None if it has one point."""
    if len(points) < 2:
        return None
    ends_us = [point.total_us for point in (points[0], points[-1])]
    others_us = beside_us or {}
    drawn_us = {n: us for n, us in others_us.items() if min(ends_us) / APART <= us <= max(ends_us) * APART}
    low, high = padded([*ends_us, *drawn_us.values()])
    frame = _Frame(axis.read(points[-1]) or 1.0, low, high)
    omitted = "; ".join(
        f"{name}, {format_latency(us)}" for name, us in others_us.items() if name not in drawn_us
    )
    title_place = {"x": WIDTH - RIGHT, "y": TOP + 4, "text_anchor": "end", "class_": "title"}
    range_words = f"from {format_latency(points[0].total_us)} to {format_latency(points[-1].total_us)}"
    first, *later_points = points  # the curve falls in steps
    path = f"M{frame.x(axis.read(first))} {frame.y(first.total_us)}" + "".join(
        f"H{frame.x(axis.read(point))}V{frame.y(point.total_us)}" for point in later_points
    )
    return el(
        "svg",
        _grid(frame, axis),
        _lines_at(frame, drawn_us),
        el("text", f"off the picture: {omitted}", **title_place) if omitted else None,
        el("path", d=path, class_="curve"),
        _draw_improvements(points, axis, frame),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"best weighted latency against {axis.title}: {range_words}",
    )


def _grid(frame: _Frame, axis: XAxis) -> Iterator[Html]:
    bottom = HEIGHT - BOTTOM
    for value in log_ticks(frame.low, frame.high):
        y = frame.y(value)
        yield el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")
        yield el("text", format_latency(value), x=LEFT - 8, y=y + 4, text_anchor="end")
    for value in even_ticks(0, frame.right):
        yield el("text", axis.words(value), x=frame.x(value), y=bottom + 18, text_anchor="middle")
    yield el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis")
    yield el("text", axis.title, x=WIDTH - RIGHT, y=HEIGHT - 4, text_anchor="end", class_="title")


def _lines_at(frame: _Frame, latencies_us: Mapping[str, float]) -> Iterator[Html]:
    for name, value in latencies_us.items():
        y = frame.y(value)
        yield el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="beside")
        words = f"{name} {format_latency(value)}"
        yield el("text", words, x=WIDTH - RIGHT, y=y - 4, text_anchor="end", class_="title")


def _draw_improvements(points: Sequence[CurvePoint], axis: XAxis, frame: _Frame) -> Iterator[Html]:
    before_us = math.inf
    for point in points:
        if point.total_us < before_us:
            round_ = "before the first round" if point.round is None else f"round {point.round}"
            total, seconds = format_latency(point.total_us), format_duration(point.sec)
            words = f"{round_}: {total} after {point.trials} trials, {seconds}"
            place = {"cx": frame.x(axis.read(point)), "cy": frame.y(point.total_us)}
            yield el("circle", el("title", words), r=2.5, **place)
        before_us = point.total_us
