"""Report of the latency benchmark: one row per model and thread count, with ratios."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

BASE: Final = "onnxruntime"
# Two runs on one machine may differ by this factor.
NOISE: Final = 1.1
Cell = Mapping[str, Any]


def summarise(cells: Sequence[Cell], labels: Sequence[str]) -> dict[str, Any]:
    """Return cells with ratios, and the headline: last label over best rival."""
    last = labels[-1]
    over_rival = [_median(cell, last) / min(_rivals(cell, labels).values()) for cell in cells]
    return {
        "labels": list(labels),
        "cells": [{**cell, "over_onnxruntime": _ratios(cell)} for cell in cells],
        "headline": prod(over_rival) ** (1 / len(over_rival)),
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return a Markdown table, the skipped engines, and the headline."""
    cells: list[Cell] = found["cells"]
    names = list(dict.fromkeys(name for cell in cells for name in cell["latency_us"]))
    table = [
        f"| model, threads | {' | '.join(names)} |",
        "|" + "---|" * (len(names) + 1),
        *(f"| {cell['model']}, {cell['threads']} | {' | '.join(_entries(cell, names))} |" for cell in cells),
    ]
    missing = [
        f"{cell['model']}, {cell['threads']} threads, without {name}: {why.splitlines()[0]}"
        for cell in cells
        for name, why in cell["left_out"].items()
    ]
    headline = f"{found['labels'][-1]} over the best rival, geometric mean: {found['headline']:.2f}"
    return [*table, *missing, headline]


def verdicts(found: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """Compare each cell's ratio of our last label with the stored ratio; labels may differ."""
    before = {(cell["model"], cell["threads"]): _last_ratio(stored, cell) for cell in stored["cells"]}
    return [
        _verdict(cell, _last_ratio(found, cell), before.get((cell["model"], cell["threads"])))
        for cell in found["cells"]
    ]


def _last_ratio(summary: Mapping[str, Any], cell: Cell) -> float:
    return _ratios(cell)[summary["labels"][-1]]


def _verdict(cell: Cell, ratio: float, stored: float | None) -> str:
    summary = f"{cell['model']}, {cell['threads']} threads: {ratio:.2f} of onnxruntime's latency"
    if stored is None:
        return f"{summary}; nothing is stored to compare with"
    change = ratio / stored
    words = "slower" if change > NOISE else "faster" if change < 1 / NOISE else "as before"
    return f"{summary}, {stored:.2f} stored: {words}"


def _entries(cell: Cell, names: Sequence[str]) -> list[str]:
    ratios = _ratios(cell)
    return [
        f"{_median(cell, name) / 1e3:.3f} ms ({ratios[name]:.2f})" if name in ratios else "" for name in names
    ]


def _ratios(cell: Cell) -> dict[str, float]:
    return {name: _median(cell, name) / _median(cell, BASE) for name in cell["latency_us"]}


def _rivals(cell: Cell, labels: Sequence[str]) -> dict[str, float]:
    return {name: _median(cell, name) for name in cell["latency_us"] if name not in labels}


def _median(cell: Cell, name: str) -> float:
    return float(cell["latency_us"][name]["median"])
