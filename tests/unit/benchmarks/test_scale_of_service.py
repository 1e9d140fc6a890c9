"""What the measurement of the whole service says of a cell from its figures."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.scale.__main__ import cells_of, parse_arguments
from benchmarks.scale.cell import Cell, idle_seconds, merge_statements
from benchmarks.scale.launch import shorten
from benchmarks.scale.plot import IDEAL, chart, read_curves
from benchmarks.scale.verdict import Load, table, verdict

HALF = Load(devices=0.5, processors=0.5, workers=0.5, control=0.5, lock_waits=0.0, open_rounds=1.5)
CELL = Cell(64, 0.5, 1, 50, 4, 1, 20.0, 40.0, is_filled=False)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"devices": 0.95, "workers": 1.0}, "devices busy"),
        ({"lock_waits": 0.3, "processors": 1.0}, "lock waits"),
        ({"processors": 0.95, "control": 1.0}, "processors full"),
        ({"control": 0.9, "workers": 1.0}, "control busy"),
        ({"open_rounds": 0.4, "workers": 0.95}, "too few open rounds"),
        ({"workers": 0.95}, "workers all busy"),
        ({}, "latency: nothing is full"),
    ],
)
def test_the_verdict_names_the_resource_that_is_full(changes: Mapping[str, float], limit: str) -> None:
    assert verdict(replace(HALF, **changes)) == limit


def session(device: str, *spans: tuple[float, float], until: float) -> dict[str, Any]:
    return {"device": device, "session": (spans[0][0] if spans else until, until), "spans": spans}


def test_a_device_is_free_from_the_end_of_a_session_to_the_first_candidate_of_its_next() -> None:
    sessions = [
        session("a", (12.5, 13.0), (13.0, 14.0), until=14.0),
        session("a", (10.0, 11.0), until=12.0),
        session("b", (10.0, 13.0), until=13.0),
        session("b", (13.25, 14.0), until=14.0),
    ]
    assert sorted(idle_seconds(sessions, 10.0, 20.0)) == [0.25, 0.5]


def test_only_sessions_that_begin_in_the_window_count() -> None:
    sessions = [session("a", (begun, begun + 1.0), until=begun + 1.0) for begun in (0.0, 10.0, 20.0)]
    assert [*idle_seconds(sessions, 5.0, 15.0)] == [9.0]


def test_a_session_without_candidates_does_not_end_the_wait_of_a_device() -> None:
    sessions = [
        session("a", (0.0, 1.0), until=1.0),
        session("a", until=2.0),
        session("a", (4.0, 5.0), until=5.0),
    ]
    assert [*idle_seconds(sessions, 0.0, 9.0)] == [3.0]


def test_statements_are_listed_by_the_time_that_all_their_executions_took() -> None:
    counted = {
        "control": {
            "statements": {"SELECT 1": {"count": 100, "sec": 0.5}, "SELECT 2": {"count": 0, "sec": 0.0}}
        },
        "worker": {"statements": {"SELECT 1": {"count": 1, "sec": 2.0}}},
    }
    rows = [(row["kind"], row["statement"], row["count"]) for row in merge_statements(counted)]
    assert rows == [("worker", "SELECT 1", 1), ("control", "SELECT 1", 100)]


def test_a_long_statement_keeps_its_tables_and_its_conditions() -> None:
    columns = ", ".join(f"jobs.column{number}" for number in range(60))
    short = [shorten(f"SELECT {columns}\nFROM jobs\nWHERE jobs.{name} = 1") for name in ("id", "owner")]
    assert [text.rpartition(" FROM ")[2] for text in short] == [
        "jobs WHERE jobs.id = 1",
        "jobs WHERE jobs.owner = 1",
    ]
    assert all(text.startswith("SELECT jobs.column0, ") and len(text) < 310 for text in short)


def test_jobs_have_more_tasks_than_there_are_devices() -> None:
    assert CELL.jobs_per_target == 2
    assert replace(CELL, devices=256).jobs_per_target == 8
    assert replace(CELL, devices=256, targets=8).jobs_per_target == 1


def test_a_worker_has_sixteen_devices_or_more_if_there_are_no_further_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    words = ["--devices", "4,64,256", "--candidate-sec", "0,4"]
    found = [(cell.devices, cell.candidate_sec, cell.workers) for cell in cells_of(parse_arguments(words))]
    assert found == [(4, 0.0, 1), (64, 0.0, 2), (256, 0.0, 4), (4, 4.0, 1), (64, 4.0, 2), (256, 4.0, 4)]
    assert [cell.workers for cell in cells_of(parse_arguments([*words, "--workers", "3"]))] == [3] * 6


def test_the_table_has_a_row_a_cell_and_a_dash_for_what_a_cell_does_not_have() -> None:
    figures = dict.fromkeys(
        (
            "candidates_per_sec",
            "statements_per_candidate",
            "transactions_per_candidate",
            "redis_commands_per_candidate",
            "lock_wait_sec",
            "idle_median_ms",
            "idle_p90_ms",
            "control_busy",
            "processors_busy",
            "processors_of_others",
        ),
        1.0,
    )
    row = {
        "devices": 4,
        "candidate_sec": 0.0,
        "workers": 4,
        "places": 4,
        "connections": 9,
        "share_of_ideal": None,
    }
    lines = table(
        [figures | row | {"processor_ms_per_candidate": {"worker": 15.0}, "verdict": "control busy"}]
    )
    head, cells = (line.split("  ") for line in lines)
    named = dict(zip([w.strip() for w in head if w], [w.strip() for w in cells if w], strict=True))
    assert (named["devices"], named["share"], named["worker ms"], named["control ms"]) == (
        "4",
        "-",
        "15.00",
        "-",
    )
    assert named["limit"] == "control busy"


def test_the_plot_has_a_panel_for_each_candidate_time_and_the_ideal_where_candidates_take_time(
    tmp_path: Path,
) -> None:
    def write(name: str, *cells: tuple[int, float, float]) -> Path:
        keys = "devices", "candidate_sec", "candidates_per_sec"
        file = tmp_path / name
        file.write_text(json.dumps({"cells": [dict(zip(keys, cell, strict=True)) for cell in cells]}))
        return file

    before = write("before.json", (1, 0.0, 40.0), (16, 0.5, 20.0))
    after = write("after.json", (16, 0.5, 30.0)), write("more.json", (64, 0.5, 60.0))
    curves = read_curves({"before": [before], "after": after})
    assert curves == {
        0.0: {"before": {1: 40.0}},
        0.5: {IDEAL: {16: 32.0, 64: 128.0}, "before": {16: 20.0}, "after": {16: 30.0, 64: 60.0}},
    }
    drawn = ElementTree.fromstring(chart(curves))
    lines = drawn.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 4
    assert len({line.attrib["stroke"] for line in lines}) == 3
