"""The report of the GPU benchmark: medians of ratios, and what failed with its reason."""

from pathlib import Path

from benchmarks.gpu.cells import Cells, Row, Value
from benchmarks.gpu.kernel_batch import in_rounds
from benchmarks.gpu.kernel_index import CHANCE, DLIGHT, FIRST_GUESS, INDEX, Kernel, counts_below
from benchmarks.gpu.report import report


def timed(means: str, us: float, **more: Value) -> Row:
    return {
        "ok": True,
        "task": "product",
        "means": means,
        "us": us,
        "rival_us": 10.0,
        "rival": "cuBLAS",
        **more,
    }


def test_each_means_stands_beside_the_library(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "part1.jsonl")
    cells.keep("product/first guess", **timed(FIRST_GUESS, 20.0))
    cells.keep("product/DLight", **timed(DLIGHT, 40.0))
    cells.keep("product/chance 0", **timed(CHANCE, 12.5))
    cells.keep("product/chance 1", **timed(CHANCE, 25.0, disturbed=0.4))
    wrong: Row = {"ok": False, "task": "product", "means": CHANCE, "error": "relative error 0.9"}
    cells.keep("product/chance 2", **wrong)
    assert "| product | cuBLAS | 10.0 | 0.50 | 0.25 | 0.80 | 1.5 | 4 of 5, 1 disturbed |" in report(tmp_path)


def test_without_a_library_the_times_themselves_are_shown(tmp_path: Path) -> None:
    row: Row = {"ok": True, "task": "softmax", "means": CHANCE, "us": 7.25}
    Cells(tmp_path / "part1.jsonl").keep("softmax/chance 0", **row)
    assert "| softmax | none |  |  |  | 7.2 us | 1.0 | 1 of 1 |" in report(tmp_path)


def test_assertions_are_told_apart_by_how_they_ended(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "part1.jsonl")
    cells.keep("assertion: runtime loads", ok=True)
    cells.keep("assertion: session runs a kernel", ok=False, error="the sums are wrong")
    cells.keep("assertion: device identity", ok=None, left_out="there is no GPU")
    told = report(tmp_path)
    assert "| runtime loads | holds |  |" in told
    assert "| session runs a kernel | FAILS | the sums are wrong |" in told
    assert "| device identity | left out | there is no GPU |" in told


def test_driver_and_clocks_are_named(tmp_path: Path) -> None:
    clocks: Row = {"clocks.sm": "1980 MHz"}
    cells = Cells(tmp_path / "part1.jsonl")
    cells.keep("assertion: device identity", ok=True, name="NVIDIA H100", driver="580.1", nvml=clocks)
    told = report(tmp_path)
    assert "| driver | 580.1 |" in told
    assert "| clocks.sm | 1980 MHz |" in told


def test_whole_models_stand_in_one_table(tmp_path: Path) -> None:
    us: Row = {"tuned": 100.0, "torch eager": 250.0}
    cells = Cells(tmp_path / "part2.jsonl")
    cells.keep("mlp: tuned", ok=True, verdict="faster")
    cells.keep("mlp: tuned and torch eager in turn", ok=True, us=us)
    told = report(tmp_path)
    assert "| mlp: tuned | done | faster |" in told
    assert "| mlp: tuned and torch eager in turn | done | tuned 100 us, torch eager 250 us |" in told


def test_every_task_has_its_turn_before_one_has_its_second_batch() -> None:
    kernels = [Kernel(f"{task}{number}", task, CHANCE, "") for task in "ab" for number in range(3)]
    assert [kernel.cell for kernel in in_rounds(kernels, 2)] == ["a0", "a1", "b0", "b1", "a2", "b2"]


def test_what_was_built_is_counted_by_task_and_means(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "00" / INDEX)
    for cell, means in (("a/DLight", DLIGHT), ("a/chance 0", CHANCE), ("a/chance 1", CHANCE)):
        built: Row = {"ok": True, "task": "a", "means": means, "file": "f.so"}
        cells.keep(cell, **built)
    cells.keep("a/chance 2", ok=False, error="the process that ran it ended twice")
    built_counts, errors = counts_below(tmp_path)
    assert built_counts == {"a: DLight": 1, "a: chance": 2}
    assert errors == {"a/chance 2": "the process that ran it ended twice"}


def test_searches_stand_beside_the_library_with_their_idle_shares_and_races(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "part3" / "softmax" / "cells.jsonl")
    for method, idle in (("ours", 0.1), ("chance", 0.2), ("MetaSchedule", 0.6)):
        cells.keep(f"softmax/{method}/0", ok=True, idle_share=idle)
    times: Row = {"first guess": 12.0, "ours": 10.0, "chance": 20.0, "MetaSchedule": 15.0}
    cells.keep("softmax/in turn", ok=True, us=times, library="torch softmax", library_us=15.0)
    cells.keep("softmax/sanitizer racecheck", ok=False, results={})
    told = report(tmp_path)
    assert (
        "| softmax | torch softmax | 15.0 | 1.25 | 1.50 | 0.75 | 1.00 | 0.1/0.2/0.6 | racecheck: ERRORS |"
        in told
    )
    assert "| time over ours, geometric mean of 1 |  |  | 1.20 |  | 2.00 | 1.50 |" in told
