"""What a finished job came to: how fast the model was, is, and would be elsewhere, and what went wrong."""

from collections.abc import Mapping
from typing import Any, Final

from mallorn.wording.units import duration, latency

ENGINES: Final = {
    "untuned": "TVM, default build",
    "tuned": "TVM, tuned by Mallorn",
    "onnxruntime": "onnxruntime",
}
ENGINE_COLUMNS: Final = {
    "engine": "ENGINE",
    "median": "LATENCY",
    "interval": "INTERVAL",
    "times": "TIMES FASTER",
}


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
    return [trials, *_checks(report), *_inside(report), *left_undone(report), *warnings(body)]


def left_undone(report: dict[str, Any]) -> list[str]:
    """Which steps the finish had to leave out, and why, a line each."""
    return [
        _with_hint(f"not done: {step['step']}: {step['why']}", step) for step in report.get("not_done") or ()
    ]


def warnings(body: dict[str, Any]) -> list[str]:
    """What went wrong along the way without ending the job, a line each."""
    return [
        _with_hint(f"warning: {told['source']}: {told['message']}{_often(told)}", told)
        for told in body.get("warnings") or ()
    ]


def _with_hint(words: str, told: dict[str, Any]) -> str:
    hint = told.get("hint")
    return f"{words}; {hint}" if hint else words


def _often(warning: dict[str, Any]) -> str:
    count = warning.get("count", 1)
    return f" ({count} times)" if count > 1 else ""


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
