"""Benchmarks make of the raw figures in docs/results the headlines that are kept there and shown by docs."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from benchmarks import (
    decoding,
    dynamic,
    functions,
    walls,
    warm_cold_report,
)
from benchmarks.latency_report import summarise
from tests.fixtures.command_line import ROOT

RESULTS: Final = ROOT / "docs" / "results"
#: One that is kept without its headline.
BARE: Final = "latency_winograd_small"
# A report, and the last line that it makes of the cells in the folder of its name.
FOLDERS: Final = {
    "warm_cold": (
        warm_cold_report,
        "trials to 1.05 of the cold job's latency, share of the cold job's: 1.00",
    ),
}


def kept(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_report_of_the_kept_cells_ends_as_the_kept_one(name: str) -> None:
    report, last = FOLDERS[name]
    found = report.report([json.loads(path.read_text()) for path in sorted((RESULTS / name).glob("*.json"))])
    assert found["headline"] == pytest.approx(kept(name)["headline"])
    assert list(report.lines(found))[-1] == last


def of_latency(raw: dict[str, Any]) -> float:
    return float(summarise(raw["cells"], raw["labels"])["headline"])


def of_walls(raw: dict[str, Any]) -> float:
    return float(walls.told({way: raw["latency_us"][way] for way in ("with", "without")})["ratio"])


def of_decoding(raw: dict[str, Any]) -> str:
    return decoding.headline(raw["steps"], raw["prompts"], raw["weights_bytes"], raw["memory_gb_s"])


LATENCIES: Final = sorted({path.stem for path in RESULTS.glob("latency*.json")} - {BARE})
HEADLINES: Final[dict[str, Callable[[dict[str, Any]], float | str]]] = {
    **dict.fromkeys(LATENCIES, of_latency),
    "dynamic_bert": lambda raw: dynamic.headline(raw["sizes"]),
    "dynamic_tcn": lambda raw: dynamic.headline(raw["sizes"]),
    "decoding": of_decoding,
    "functions": lambda raw: functions.headline(raw["gb_s"]),
    "walls": of_walls,
}


@pytest.mark.parametrize("name", HEADLINES)
def test_a_headline_is_made_of_the_raw_figures_beside_it(name: str) -> None:
    raw = kept(name)
    assert HEADLINES[name](raw) == pytest.approx(raw["headline"])
