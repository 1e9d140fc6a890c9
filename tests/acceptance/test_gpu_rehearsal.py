"""The minutes with a GPU, rehearsed: an empty directory, a bare Python, no network, and this machine's processor."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.gpu.prepare import MEGABYTE, REPORT
from benchmarks.gpu.rehearse import Rehearsal, interpreter, rehearse
from benchmarks.gpu.report import report
from benchmarks.gpu.tasks import REHEARSAL

# The packages and the packed compiler stay for the next run, as what `make test-all` fetches otherwise.
OUT = Path(__file__).resolve().parents[2] / "build" / "gpu-rehearsal"
GPU_PYTHON = "3.12"
TARGET = '{"kind":"llvm","num-cores":1}'
TRANSFER_MB = 100
CHANCE = 2

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def version() -> str:
    """Return the version of Python on the other machine, or this one's where that is not installed."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    return GPU_PYTHON if interpreter(GPU_PYTHON) else ours


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def rehearsal(version: str, empty: Path) -> Rehearsal:
    options = ["--tasks", "rehearsal", "--target", TARGET, "--chance", str(CHANCE), "--python", version]
    options += ["--preset", "1", "--transfer-mb", str(TRANSFER_MB), "--out", str(OUT)]
    subprocess.run([sys.executable, "-m", "benchmarks.gpu", "prepare", *options], check=True)
    return rehearse(OUT, empty, version)


def test_no_transfer_is_larger_than_its_limit(rehearsal: Rehearsal) -> None:
    told = json.loads((OUT / REPORT).read_text())
    assert len(told["transfers_bytes"]) > 2, "the compiler alone is larger than one transfer"
    for size in told["transfers_bytes"].values():
        assert size + told["tracked_bytes"] <= TRANSFER_MB * MEGABYTE


def test_every_assertion_holds_or_says_why_it_is_left_out(rehearsal: Rehearsal) -> None:
    asserted = [row for row in rehearsal.cells["part 1"] if str(row["cell"]).startswith("assertion")]
    assert len(asserted) == 7
    assert [row for row in asserted if row["ok"] is False] == []
    assert all(row["left_out"] for row in asserted if row["ok"] is None)


def test_every_kernel_is_right_and_timed(rehearsal: Rehearsal) -> None:
    kernels = [row for row in rehearsal.cells["part 1"] if "task" in row]
    assert {row["task"] for row in kernels} == {task.name for task in REHEARSAL}
    assert [row for row in kernels if not (row["ok"] and row["us"])] == []
    assert all(row["rival_left_out"] == "torch is not installed" for row in kernels)


def test_a_part_that_was_killed_does_nothing_twice(rehearsal: Rehearsal) -> None:
    for name, cells in rehearsal.cells.items():
        assert max(Counter(str(row["cell"]) for row in cells).values()) == 1
        again = [cell for cell, starts in Counter(rehearsal.begun[name]).items() if starts > 1]
        assert len(again) <= 1, "only what was under way when it was killed begins again"


def test_a_job_that_was_killed_goes_on_and_its_model_is_timed(rehearsal: Rehearsal) -> None:
    found = {str(row["cell"]): row for row in rehearsal.cells["part 2"]}
    assert found["mlp: tuned"]["state"] == "done", found["mlp: tuned"]
    assert found["mlp: compiled"]["ok"]
    assert found["mlp: tuned alone"]["us"]
    for rival in ("torch eager", "torch.compile"):
        assert found[f"mlp: {rival} alone"]["left_out"] == "torch is not installed"


def test_the_report_has_a_table_of_each_kind(rehearsal: Rehearsal, empty: Path) -> None:
    told = report(empty / "results")
    for title in ("## Assertions", "## Device", "## Kernels", "## Whole models"):
        assert title in told
