"""The last table of a job, for reports with and without every figure."""

from pathlib import Path
from typing import Any

import pytest

from mallorn.cli.print_job_result import complete_command, print_result, print_tuned_job
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.job import JobStatus
from mallorn.wording.describe_results import describe_result, engine_columns, latency_rows

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


def rows(**latencies: dict[str, float] | None) -> list[list[Any]]:
    report = FinishReport.model_validate({"latency_us": latencies})
    columns = engine_columns(report.latency_us)
    return [
        [column.heading for column in columns],
        *([column.of(row) for column in columns] for row in latency_rows(report.latency_us)),
    ]


def test_each_engine_gets_its_median_its_interval_and_its_speed_beside_onnxruntime() -> None:
    heading, untuned, tuned, onnxruntime = rows(untuned=UNTUNED, tuned=TUNED, onnxruntime=ORT)
    assert heading[3] == "VS ONNXRUNTIME"
    assert (untuned[1], untuned[3]) == ("50.000 ms", "0.0032")
    assert tuned[1:] == ["250.0 us", "240.0 us to 260.0 us", "0.64"]
    assert onnxruntime[3] == "1"


def test_the_tuned_models_ratio_is_the_verdicts_from_bursts_in_pairs() -> None:
    paired = {"tuned": TUNED | {"bursts": [250.0, 400.0]}, "onnxruntime": ORT | {"bursts": [200.0, 320.0]}}
    assert rows(**paired)[1][3] == "0.80"


def test_without_onnxruntime_the_default_build_is_the_rival_and_the_heading_says_so() -> None:
    heading, untuned, tuned = rows(untuned=UNTUNED, tuned=TUNED)
    assert (heading[3], untuned[3], tuned[3]) == ("VS DEFAULT BUILD", "1", "200.0")


def test_an_engine_that_is_not_installed_has_no_row() -> None:
    assert rows(tuned=TUNED, onnxruntime=None) == [
        ["ENGINE", "LATENCY", "INTERVAL"],
        ["TVM, tuned by Mallorn", "250.0 us", "240.0 us to 260.0 us"],
    ]


def test_trials_seconds_and_failures_by_outcome_are_told() -> None:
    trials, found, error = describe_result(job())
    assert trials == "200 trials in 1:30; failures: 3 build_error, 1 run_timeout"
    assert found == "6 of 6 workloads have a verified schedule"
    assert error == "relative error 2.0e-07 against TVM's default build"


def test_what_no_device_measured_nobody_has_verified() -> None:
    assert (
        describe_result(job(report=REPORT | {"measured_by": "replay"}))[1]
        == "6 of 6 workloads have an unchecked schedule"
    )


def test_without_failures_it_says_none() -> None:
    calm = job(progress={"trials": 8, "failures": {}})
    assert describe_result(calm)[0].endswith("failures: none")
    choosy = job(progress={"trials": 8, "failures": {}, "unbuilt_candidates": 6})
    assert describe_result(choosy)[0].endswith(
        "failures: none; 6 not built: their unrolled code is too large"
    )


def test_the_table_is_data_and_the_next_command_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    print_tuned_job(job(), Path("out"), "mlp.onnx")
    printed = capsys.readouterr()
    assert "TVM, tuned by Mallorn" in printed.out
    assert "python out/apply.py mlp.onnx --check" in printed.err


def test_what_is_no_onnx_file_is_checked_by_mallorn(capsys: pytest.CaptureFixture[str]) -> None:
    print_tuned_job(job(), Path("out"), "module.json")
    assert "  mallorn verify module.json --schedules out\n" in capsys.readouterr().err


def test_a_job_without_figures_still_names_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    print_tuned_job(job(report=None), Path("out"), "mlp.onnx")
    assert "LATENCY" not in capsys.readouterr().out


def test_what_the_pass_inside_the_whole_model_changed_is_told() -> None:
    joint = {
        "uses_replacements": True,
        "latency_us": {"before": 8540.0, "after": 8210.0},
        "tasks": [{"task": "conv2d", "before_us": 763.0, "after_us": 702.0}],
    }
    told = (
        "for the whole model's sake one task has another of the fastest schedules: 8.540 ms became 8.210 ms"
    )
    assert told not in describe_result(job())
    assert told in describe_result(job(report=REPORT | {"model_contests": joint}))
    assert told not in describe_result(
        job(report=REPORT | {"model_contests": joint | {"uses_replacements": False}})
    )


def earning(latency_us: dict[str, float], **joint: bool) -> JobStatus:
    inside = {"latency_us": latency_us, **joint}
    found_by = {"default": 1, "mutation": 4}
    return job(report=REPORT | {"search_methods": found_by, "model_contests": inside})


def test_what_trials_won_is_told_beside_the_first_guesses_and_by_what_means() -> None:
    by = "; tasks by how their schedules were found: mutation 4, default 1"
    told = "trials won 9.1 % over a job without trials: 2.000 ms became 1.818 ms, timed in turn"
    assert describe_result(earning({"before": 1818.0, "guesses": 2000.0}))[1] == told + by
    taken = earning({"before": 1900.0, "after": 1700.0, "guesses": 2000.0}, uses_replacements=True)
    assert describe_result(taken)[1].startswith(
        "trials won 15.0 % over a job without trials: 2.000 ms became 1.700 ms"
    )
    for nothing in (
        earning({"before": 1999.0, "guesses": 2000.0}),
        earning({"before": 2100.0, "guesses": 2000.0}, uses_guesses=True),
    ):
        assert describe_result(nothing)[1] == f"trials won nothing over a job without trials{by}"


def test_where_first_guesses_were_not_timed_nobody_knows_what_trials_won() -> None:
    assert not any(
        "a job without trials" in line for line in describe_result(earning({"before": 8.0, "after": 7.0}))
    )


def judged(level: str, **changes: Any) -> JobStatus:
    told = {
        "level": level,
        "summary": "4.0 times slower than onnxruntime",
        "next_command": "mallorn resume j1 [x]",
    }
    return job(verdict=told, **changes)


def test_the_verdict_follows_the_figures_and_the_next_command_is_not_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_result(judged("poor"))
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "verdict: 4.0 times slower than onnxruntime"
    assert printed.err == "next:  mallorn resume j1 [x]\n"


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


def test_what_the_finish_left_out_and_what_went_wrong_are_told_with_what_helps() -> None:
    missed = {"step": "timing", "reason": "no memory", "hint": "free some"}
    odd = {"source": "search", "message": "it raised", "hint": "mallorn show j1", "count": 3}
    told = describe_result(job(warnings=[odd], report={"skipped_steps": [missed]}))
    assert told[-2:] == [
        "not done: timing: no memory; free some",
        "warning: search: it raised (3 times); mallorn show j1",
    ]


def busy(tasks: int, wins_from: int | None, loaded_us: float | None = 6000.0) -> list[str]:
    swap = {"task": "conv2d", "before_us": 90.0, "after_us": 60.0}
    loads = [
        {"programs": 0, "alone_us": 4000.0, "loaded_us": loaded_us},
        {"programs": 2, "alone_us": 8000.0, "loaded_us": loaded_us},
    ]
    found = {"tasks": [swap] * tasks, "loads": loads, "min_programs": wins_from}
    return [
        line
        for line in describe_result(job(report=REPORT | {"contention": found}))
        if "stream memory" in line
    ]


def test_what_the_model_takes_beside_other_programs_is_told_with_what_wins_there() -> None:
    takes = "beside 2 programs that compute and stream memory the model takes 8.000 ms, 4.000 ms beside none"
    assert busy(2, 1) == [
        f"{takes}, and 6.000 ms with other schedules for 2 tasks, which win from one program on: "
        "apply.py MODEL --set loaded"
    ]
    assert busy(1, None) == [
        f"{takes}, and 6.000 ms with other schedules for one task: too little to keep them"
    ]
    assert busy(0, None, None) == [f"{takes}; what is fastest alone is fastest there, too"]


def test_nobody_who_did_not_ask_is_told_of_other_programs() -> None:
    assert not any("stream memory" in line for line in describe_result(job()))


def test_a_job_without_trials_tells_where_its_time_went() -> None:
    seconds = {"import": {"wall": 2.5}, "probe": {"wall": 0.01}, "build": {"wall": 7.04, "processor": 6.9}}
    told = describe_result(job(trials=0, report=REPORT | {"seconds": seconds}))
    assert "seconds: build 7.0, import 2.5" in told
    assert not any("seconds:" in line for line in describe_result(job(report=REPORT | {"seconds": seconds})))


def test_schedules_without_a_time_are_named() -> None:
    told = describe_result(job(report=REPORT | {"untimed_tasks": ["fused_add", "fused_copy"]}))
    assert "without a time, as no clock saw their kernels: fused_add, fused_copy" in told
    assert not any("without a time" in each for each in describe_result(job()))
