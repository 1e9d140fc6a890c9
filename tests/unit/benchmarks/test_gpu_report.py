"""The report of the GPU benchmark: medians of ratios, and what failed with its reason."""

from pathlib import Path
from typing import Any

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
from tests.fixtures.kept import Kept

VECTOR, SMALL = "product with a vector 8192x8192 fp16 sums fp32", "product 2048 tf32"
WRONG = {"ok": False, "task": "product", "error": "relative error 0.9"}
SEARCHES = {"ours": 0.1, "chance": 0.2, "MetaSchedule": 0.6}


def timed(means: str, us: float, **more: Value) -> dict[str, Value]:
    row: dict[str, Value] = {"ok": True, "task": "product", "means": means, "us": us}
    return row | {"rival_us": 10.0, "rival": "cuBLAS", **more}


# What was measured, by file and cell, for each state of the report: tests/kept/gpu-report.txt.
MEASURED: dict[str, dict[str, dict[str, Any]]] = {
    "each means stands beside the library": {
        "part1.jsonl": {
            "product/first guess": timed(FIRST_GUESS, 20.0),
            "product/DLight": timed(DLIGHT, 40.0),
            "product/chance 0": timed(CHANCE, 12.5),
            "product/chance 1": timed(CHANCE, 25.0, disturbed=0.4),
            "product/chance 2": WRONG | {"means": CHANCE},
        }
    },
    "the kind of a first guess and the first guesses of other kinds are named": {
        "part1.jsonl": {
            "product/first guess": timed(FIRST_GUESS, 20.0, kind="tensor core product"),
            "product/vector product": timed(OWN_KIND, 40.0, kind="vector product"),
        }
    },
    "the prototype by wgmma stands beside the best kernel of its task": {
        "part1.jsonl": {
            "product/first guess": timed(FIRST_GUESS, 20.0),
            "product/chance 0": timed(CHANCE, 15.0),
            "product/wgmma prototype": timed(WGMMA, 12.0),
        }
    },
    "a prototype that is wrong has no time": {
        "part1.jsonl": {"product/wgmma prototype": WRONG | {"means": WGMMA}}
    },
    "a prototype that cannot run says why": {
        "part1.jsonl": {WGMMA: {"ok": None, "left_out": "it runs on sm_90a only, the kernels are for sm_80"}}
    },
    "an aim shows shares of the bandwidth and prefers times in turn": {
        "part1.jsonl": {
            "copy bandwidth": {"ok": True, "gigabytes_per_sec": 4000.0},
            **{f"{name}/first guess": timed(FIRST_GUESS, 40.0) | {"task": name} for name in (VECTOR, SMALL)},
        },
        "part3/tf32/cells.jsonl": {
            f"{SMALL}/in turn": {
                "ok": True,
                "us": {FIRST_GUESS: 24.0, "ours": 20.0, "chance": 22.0},
                "library_us": 10.0,
            },
            f"{SMALL}/ours/0": {"ok": True, "idle_share": 0.08},
            f"{SMALL}/sanitizer racecheck": {"ok": True},
        },
    },
    "a whole model stands beside torch.compile": {
        "part4.jsonl": {
            "resnet18-fp16: tuned and torch eager and torch.compile in turn": {
                "ok": True,
                "us": {"tuned": 100.0, "torch eager": 250.0, "torch.compile": 110.0},
            }
        }
    },
    "without a library the times themselves are shown": {
        "part1.jsonl": {"softmax/chance 0": {"ok": True, "task": "softmax", "means": CHANCE, "us": 7.25}}
    },
    "assertions are told apart by how they ended": {
        "part1.jsonl": {
            "assertion: runtime loads": {"ok": True},
            "assertion: session runs a kernel": {"ok": False, "error": "the sums are wrong"},
            "assertion: device identity": {"ok": None, "left_out": "there is no GPU"},
        }
    },
    "driver and clocks are named": {
        "part1.jsonl": {
            "assertion: device identity": {
                "ok": True,
                "name": "NVIDIA H100",
                "driver": "580.1",
                "nvml": {"clocks.sm": "1980 MHz"},
            }
        }
    },
    "whole models stand in one table": {
        "part2.jsonl": {
            "mlp: tuned": {"ok": True, "verdict": "faster"},
            "mlp: tuned and torch eager in turn": {"ok": True, "us": {"tuned": 100.0, "torch eager": 250.0}},
        }
    },
    "searches stand beside the library with their idle shares and races": {
        "part3/softmax/cells.jsonl": {
            **{f"softmax/{name}/0": {"ok": True, "idle_share": idle} for name, idle in SEARCHES.items()},
            "softmax/in turn": {
                "ok": True,
                "us": {"first guess": 12.0, "ours": 10.0, "chance": 20.0, "MetaSchedule": 15.0},
                "library": "torch softmax",
                "library_us": 15.0,
            },
            "softmax/sanitizer racecheck": {"ok": False, "results": {}},
        }
    },
}


def test_the_report(kept: Kept, tmp_path: Path) -> None:
    """Of nothing, whole; of what was measured, the lines that differ from it."""
    empty = report(tmp_path / "nothing").splitlines()
    texts = {"nothing was measured": "\n".join(empty)}
    for state, files in MEASURED.items():
        for file, cells in files.items():
            written = Cells(tmp_path / state / file)
            for name, cell in cells.items():
                written.keep(name, **cell)
        texts[state] = "\n".join(each for each in report(tmp_path / state).splitlines() if each not in empty)
    kept("gpu-report", texts)
    for aim in AIMS:
        assert f"| {aim.work} | {aim.aim} | {aim.beside} |  |" in empty


def test_the_tasks_of_the_aims_have_kernels_in_part_1() -> None:
    assert {name for aim in AIMS for name in aim.tasks} == {task.name for task in GPU}


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
