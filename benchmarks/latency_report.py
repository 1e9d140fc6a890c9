"""What the latency benchmark found: a row a model and number of threads, ratios to onnxruntime in the run."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

BASE: Final = "onnxruntime"
# Two sittings on one machine differ by so much at times.
NOISE: Final = 1.1
Cell = Mapping[str, Any]


def summarise(cells: Sequence[Cell], labels: Sequence[str]) -> dict[str, Any]:
    """The cells with their ratios, and the headline: the last label over the best rival, geometric mean."""
    last = labels[-1]
    beside = [_median(cell, last) / min(_rivals(cell, labels).values()) for cell in cells]
    return {
        "labels": list(labels),
        "cells": [{**cell, "over_onnxruntime": _ratios(cell)} for cell in cells],
        "headline": prod(beside) ** (1 / len(beside)),
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """A table in Markdown, what was left out, and the headline."""
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
    """Whether our last label's ratio to onnxruntime is what it was, cell by cell; the labels may differ."""
    known = {(cell["model"], cell["threads"]): _last_ratio(stored, cell) for cell in stored["cells"]}
    return [
        _verdict(cell, _last_ratio(found, cell), known.get((cell["model"], cell["threads"])))
        for cell in found["cells"]
    ]


def _last_ratio(found: Mapping[str, Any], cell: Cell) -> float:
    return _ratios(cell)[found["labels"][-1]]


def _verdict(cell: Cell, ratio: float, before: float | None) -> str:
    told = f"{cell['model']}, {cell['threads']} threads: {ratio:.2f} of onnxruntime's latency"
    if before is None:
        return f"{told}; nothing is stored to compare with"
    change = ratio / before
    words = "slower" if change > NOISE else "faster" if change < 1 / NOISE else "as before"
    return f"{told}, {before:.2f} stored: {words}"


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
