"""The report of the GPU benchmark: medians of ratios, and what failed with its reason."""

from pathlib import Path

from benchmarks.gpu.aims import AIMS
from benchmarks.gpu.cells import Cells, Row, Value
from benchmarks.gpu.kernel_batch import in_rounds
from benchmarks.gpu.kernel_index import (
    CHANCE,
    DLIGHT,
    FIRST_GUESS,
    INDEX,
    OWN_KIND,
    WGMMA,
    Kernel,
    counts_below,
)
from benchmarks.gpu.report import report
from benchmarks.gpu.tasks import GPU


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
    assert "| product | cuBLAS | 10.0 | 0.50 | 0.25 | 0.80 | 1.5 |  | 4 of 5, 1 disturbed |" in report(
        tmp_path
    )


def test_the_kind_of_a_first_guess_and_the_first_guesses_of_other_kinds_are_named(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "part1.jsonl")
    cells.keep("product/first guess", **timed(FIRST_GUESS, 20.0, kind="tensor core product"))
    cells.keep("product/vector product", **timed(OWN_KIND, 40.0, kind="vector product"))
    row = "| product | cuBLAS | 10.0 | 0.50 tensor core product |  |  |  | 0.25 vector product | 2 of 2 |"
    assert row in report(tmp_path)


def test_the_prototype_by_wgmma_stands_beside_the_best_kernel_of_its_task(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "part1.jsonl")
    cells.keep("product/first guess", **timed(FIRST_GUESS, 20.0))
    cells.keep("product/chance 0", **timed(CHANCE, 15.0))
    cells.keep("product/wgmma prototype", **timed(WGMMA, 12.0))
    assert "| right | 12.0 us | chance 0 15.0 us | 1.25 | 10.0 us |" in report(tmp_path)


def test_a_prototype_that_is_wrong_has_no_time(tmp_path: Path) -> None:
    wrong: Row = {"ok": False, "task": "product", "means": WGMMA, "error": "relative error 0.9"}
    Cells(tmp_path / "part1.jsonl").keep("product/wgmma prototype", **wrong)
    assert "| FAILS: relative error 0.9 |  |  |  |  |" in report(tmp_path)


def test_a_prototype_that_cannot_run_says_why(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "part1.jsonl")
    cells.keep(WGMMA, ok=None, left_out="it runs on sm_90a only, and the kernels are for sm_80")
    assert "| left out: it runs on sm_90a only, and the kernels are for sm_80 |" in report(tmp_path)


def test_each_row_of_the_aims_is_printed_and_empty_where_nothing_was_measured(tmp_path: Path) -> None:
    told = report(tmp_path)
    for aim in AIMS:
        assert f"| {aim.work} | {aim.aim} | {aim.beside} |  |" in told
    assert "| whole models, batch 1, with graphs | 0.9-1.3 | torch.compile |  |" in told


def test_an_aim_shows_shares_of_the_bandwidth_and_prefers_times_in_turn(tmp_path: Path) -> None:
    vector, small = "product with a vector 8192x8192 fp16 sums fp32", "product 2048 tf32"
    first = Cells(tmp_path / "part1.jsonl")
    first.keep("copy bandwidth", ok=True, gigabytes_per_sec=4000.0)
    for name in (vector, small):
        row: Row = {**timed(FIRST_GUESS, 40.0), "task": name}
        first.keep(f"{name}/first guess", **row)
    times: Row = {FIRST_GUESS: 24.0, "ours": 20.0, "chance": 22.0}
    cells = Cells(tmp_path / "part3" / "tf32" / "cells.jsonl")
    cells.keep(f"{small}/in turn", ok=True, us=times, library_us=10.0)
    cells.keep(f"{small}/ours/0", ok=True, idle_share=0.08)
    cells.keep(f"{small}/sanitizer racecheck", ok=True)
    told = report(tmp_path)
    assert (
        "| TF32 |  | cuBLAS in TF32 | product 2048 tf32: first guess 0.42, ours 0.50, chance 0.45 |" in told
    )
    assert f"| {vector}: first guess 0.25 (0.84 of copy bandwidth) |" in told
    assert "| search at equal trials | 1.15 | first guess | 1.20 (geometric mean of 1 of 12 tasks) |" in told
    assert "| idle share of the GPU while ours searches | at most 0.10 |  | 0.08 to 0.08 in 1 tasks |" in told
    assert "| races and wrong accesses | none |  | 0 of 1 runs of tools |" in told


def test_the_tasks_of_the_aims_have_kernels_in_part_1() -> None:
    assert {name for aim in AIMS for name in aim.tasks} == {task.name for task in GPU}


def test_a_whole_model_stands_beside_torch_compile(tmp_path: Path) -> None:
    us: Row = {"tuned": 100.0, "torch eager": 250.0, "torch.compile": 110.0}
    cells = Cells(tmp_path / "part4.jsonl")
    cells.keep("resnet18-fp16: tuned and torch eager and torch.compile in turn", ok=True, us=us)
    assert "| 0.9-1.3 | torch.compile | resnet18-fp16 1.10 |" in report(tmp_path)


def test_without_a_library_the_times_themselves_are_shown(tmp_path: Path) -> None:
    row: Row = {"ok": True, "task": "softmax", "means": CHANCE, "us": 7.25}
    Cells(tmp_path / "part1.jsonl").keep("softmax/chance 0", **row)
    assert "| softmax | none |  |  |  | 7.2 us | 1.0 |  | 1 of 1 |" in report(tmp_path)


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
