"""The last table of a job, for reports with and without every figure."""

from pathlib import Path
from typing import Any

import pytest

from mallorn.cli.print_job_result import complete_command, print_result, print_tuned_job
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.job import JobStatus
from mallorn.wording.describe_results import describe_result, engine_columns, latency_rows
from tests.fixtures.kept import Kept

UNTUNED = {"median": 50_000.0, "low": 49_000.0, "high": 51_000.0}
TUNED = {"median": 250.0, "low": 240.0, "high": 260.0}
ORT = {"median": 160.0, "low": 150.0, "high": 170.0}


REPORT = {
    "latency_us": {"untuned": UNTUNED, "tuned": TUNED},
    "schedule_count": 6,
    "workload_count": 6,
    "error_vs_untuned": 2e-7,
}


def job(**changes: Any) -> JobStatus:
    known = {
        "id": "j1",
        "state": "done",
        "report": REPORT,
        "progress": {"trials": 200, "failures": {"build_error": 3, "run_timeout": 1}},
        "created_at": 100.0,
        "finished_at": 190.0,
        **changes,
    }
    return JobStatus.model_validate(known)


PAIRED = {"tuned": TUNED | {"bursts": [250.0, 400.0]}, "onnxruntime": ORT | {"bursts": [200.0, 320.0]}}
# The latencies that are known, by state: tests/kept/engines.txt.
ENGINES: dict[str, dict[str, Any]] = {
    "beside onnxruntime": {"untuned": UNTUNED, "tuned": TUNED, "onnxruntime": ORT},
    "by bursts in pairs": PAIRED,
    "without onnxruntime": {"untuned": UNTUNED, "tuned": TUNED},
    "onnxruntime is not installed": {"tuned": TUNED, "onnxruntime": None},
}


def test_each_engine_gets_its_median_its_interval_and_its_speed_beside_its_rival(kept: Kept) -> None:
    texts = {}
    for state, latencies in ENGINES.items():
        known = FinishReport.model_validate({"latency_us": latencies}).latency_us
        columns = engine_columns(known)
        lines = [[str(column.of(row)) for column in columns] for row in latency_rows(known)]
        texts[state] = "\n".join(map(" | ".join, [[column.heading for column in columns], *lines]))
    kept("engines", texts)


def earning(latency_us: dict[str, float], **joint: bool) -> JobStatus:
    inside = {"latency_us": latency_us, **joint}
    found_by = {"default": 1, "mutation": 4}
    return job(report=REPORT | {"search_methods": found_by, "model_contests": inside})


def busy(tasks: int, wins_from: int | None, loaded_us: float | None = 6000.0) -> JobStatus:
    swap = {"task": "conv2d", "before_us": 90.0, "after_us": 60.0}
    loads = [
        {"programs": programs, "alone_us": alone_us, "loaded_us": loaded_us}
        for programs, alone_us in ((0, 4000.0), (2, 8000.0))
    ]
    found = {"tasks": [swap] * tasks, "loads": loads, "min_programs": wins_from}
    return job(report=REPORT | {"contention": found})


JOINT = {
    "uses_replacements": True,
    "latency_us": {"before": 8540.0, "after": 8210.0},
    "tasks": [{"task": "conv2d", "before_us": 763.0, "after_us": 702.0}],
}
SECONDS = {"import": {"wall": 2.5}, "probe": {"wall": 0.01}, "build": {"wall": 7.04, "processor": 6.9}}
SKIPPED = {"skipped_steps": [{"step": "timing", "reason": "no memory", "hint": "free some"}]}
ODD = {"source": "search", "message": "it raised", "hint": "mallorn show j1", "count": 3}
# What is told of a result, by what the job is: tests/kept/job-results.txt.
RESULTS = {
    "trials, seconds, and failures by outcome": job(),
    "what no device measured nobody has verified": job(report=REPORT | {"measured_by": "replay"}),
    "no failures": job(progress={"trials": 8, "failures": {}}),
    "candidates that were not built": job(progress={"trials": 8, "failures": {}, "unbuilt_candidates": 6}),
    "another schedule for the whole model's sake": job(report=REPORT | {"model_contests": JOINT}),
    "one that was not taken is not told": job(
        report=REPORT | {"model_contests": JOINT | {"uses_replacements": False}}
    ),
    "what trials won beside the first guesses": earning({"before": 1818.0, "guesses": 2000.0}),
    "what trials won with other schedules in the whole model": earning(
        {"before": 1900.0, "after": 1700.0, "guesses": 2000.0}, uses_replacements=True
    ),
    "trials won too little": earning({"before": 1999.0, "guesses": 2000.0}),
    "the first guesses are used": earning({"before": 2100.0, "guesses": 2000.0}, uses_guesses=True),
    "first guesses were not timed: nobody knows what trials won": earning({"before": 8.0, "after": 7.0}),
    "what the finish left out, and what went wrong": job(warnings=[ODD], report=SKIPPED),
    "beside other programs, with what wins there": busy(2, 1),
    "beside other programs, too little to keep another schedule": busy(1, None),
    "beside other programs, nothing is faster": busy(0, None, None),
    "without trials: where its time went": job(trials=0, report=REPORT | {"seconds": SECONDS}),
    "with trials nobody is told of seconds": job(report=REPORT | {"seconds": SECONDS}),
    "schedules without a time": job(report=REPORT | {"untimed_tasks": ["fused_add", "fused_copy"]}),
}


def test_the_result_of_a_job(kept: Kept) -> None:
    kept("job-results", {state: "\n".join(describe_result(status)) for state, status in RESULTS.items()})


POOR = {
    "level": "poor",
    "summary": "4.0 times slower than onnxruntime",
    "next_command": "mallorn resume j1 [x]",
}


def test_the_table_is_data_and_the_next_command_is_not(
    capsys: pytest.CaptureFixture[str], kept: Kept
) -> None:
    texts = {}
    for state, status, model in (
        ("an onnx file", job(), "mlp.onnx"),
        ("a module of tvm", job(), "module.json"),
        ("a job without figures", job(report=None), "mlp.onnx"),
        ("a verdict", job(verdict=POOR), ""),
    ):
        print_tuned_job(status, Path("out"), model) if model else print_result(status)
        printed = capsys.readouterr()
        texts[state] = "\n".join(
            [*map(str.rstrip, printed.out.splitlines()), *(f"! {e}" for e in printed.err.splitlines())]
        )
    kept("tuned-job", texts)


def test_the_next_command_names_the_place_and_the_files_as_they_are() -> None:
    assert (
        complete_command("mallorn resume j --trials +9", " --data d")
        == "mallorn resume j --trials +9 --data d"
    )
    assert complete_command(
        "mallorn bench mlp.onnx --schedules mlp-tuned", " --data d", "m/a.onnx --schedules out"
    ) == ("mallorn bench m/a.onnx --schedules out")
    assert (
        complete_command("mallorn profile a.onnx --schedules a-tuned")
        == "mallorn profile a.onnx --schedules a-tuned"
    )
    assert complete_command("mallorn device", " --data d") == "mallorn device"
