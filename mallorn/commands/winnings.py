"""The table at the end of a job: how fast the model was, is, and would be elsewhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mallorn.commands.output import duration, latency, print_note, stdout, table

ENGINES: Final = {
    "untuned": "TVM, default build",
    "tuned": "TVM, tuned by Mallorn",
    "onnxruntime": "onnxruntime",
}
COLUMNS: Final = {"engine": "ENGINE", "median": "LATENCY", "interval": "INTERVAL", "times": "TIMES FASTER"}


def print_winnings(body: dict[str, Any], directory: Path, model: str) -> None:
    """Print a finished job's figures, where the files are, and what to type next."""
    report = body["report"] or {}
    rows = latency_rows(report.get("latency_us") or {})
    if rows:
        stdout().print(table(rows, COLUMNS))
    for line in facts(body, report):
        stdout().print(line)
    print_note(f"The schedules are in {directory}. Compile with them, or check them with stock TVM alone:")
    print_note(f"  mallorn compile {model} --schedules {directory} -o model.so")
    print_note(f"  python {directory / 'apply.py'} {model} --check")


def latency_rows(latencies: Mapping[str, Mapping[str, float] | None]) -> list[dict[str, Any]]:
    """One row an engine that was timed; TIMES FASTER is against the default build."""
    base = latencies.get("untuned")
    return [
        {
            "engine": title,
            "median": latency(timing["median"]),
            "interval": f"{latency(timing['low'])} to {latency(timing['high'])}",
            "times": f"{base['median'] / timing['median']:.1f}" if base and key != "untuned" else "",
        }
        for key, title in ENGINES.items()
        if (timing := latencies.get(key))
    ]


def facts(body: dict[str, Any], report: dict[str, Any]) -> list[str]:
    """What else is known of a finished job, a line each."""
    failures = body["progress"]["failures"]
    failed = ", ".join(f"{count} {outcome}" for outcome, count in failures.items()) or "none"
    trials = f"{body['progress']['trials']} trials in {_elapsed(body)}; failures: {failed}"
    return [trials, *_checks(report), *_inside(report)]


def _inside(report: dict[str, Any]) -> list[str]:
    """What the pass inside the whole model changed, if it did."""
    joint = report.get("inside_the_model") or {}
    if not joint.get("taken"):
        return []
    times, count = joint["latency_us"], len(joint["tasks"])
    subject = "one task has" if count == 1 else f"{count} tasks have"
    change = f"{latency(times['before'])} became {latency(times['after'])}"
    return [f"for the whole model's sake {subject} another of the fastest schedules: {change}"]


def _checks(report: dict[str, Any]) -> list[str]:
    lines = []
    if report.get("of") is not None:
        lines.append(f"{report['found']} of {report['of']} workloads have a verified schedule")
    errors = {"error_vs_untuned": "TVM's default build", "error_vs_onnxruntime": "onnxruntime"}
    known = [
        f"{report[key]:.1e} against {title}" for key, title in errors.items() if report.get(key) is not None
    ]
    return [*lines, f"relative error {', '.join(known)}"] if known else lines


def _elapsed(body: dict[str, Any]) -> str:
    started, finished = body["created_at"], body["finished_at"]
    return duration(finished - started) if finished is not None else "-"
