"""Which of several jobs is the fastest: one figure decides, and words explain another that says otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

Row = dict[str, Any]
MODEL, TASKS = "the whole model", "the sum over tasks"
# Sums of medians that are closer than this do not tell who is faster.
CLOSE: Final = 1.02
# Why the two figures may order jobs differently.
APART: Final = "tasks are timed alone and find their data in the caches, in the model they often do not"


def judge(jobs: Sequence[Row]) -> Row:
    """{"by", "fastest", "why", "note"} of jobs that `mallorn.results.comparison` describes.

    The whole model decides where every job's was timed on a quiet host, else the sum over tasks. `fastest` is
    a job's id; None where the first two are too close to tell, or nothing was timed.
    """
    doubt = _doubt(jobs)
    by, key, other = (TASKS, "reached_us", "model_us") if doubt else (MODEL, "model_us", "reached_us")
    if any(job[key] is None for job in jobs):
        return {"by": None, "fastest": None, "why": "not every job has times yet", "note": ""}
    ranked = sorted(jobs, key=lambda job: float(job[key]))
    first, second = ranked[0], ranked[1]
    close = _close(first, second, key)
    return {
        "by": by,
        "fastest": None if close else first["id"],
        "why": f"judged by {by}{f', as {doubt}' if doubt else ''}: {_told(first, second, key, close)}",
        "note": _note(first, second, other, MODEL if doubt else TASKS, doubt or APART, close),
    }


def interval(job: Mapping[str, Any]) -> tuple[float, float] | None:
    """Between which times the tuned model's median lies, where the finish timed it."""
    timing = ((job["report"] or {}).get("latency_us") or {}).get("tuned")
    return None if timing is None else (float(timing["low"]), float(timing["high"]))


def steady(job: Mapping[str, Any]) -> bool:
    """Whether the host was quiet while the whole model was timed; old reports are believed."""
    return bool(((job["report"] or {}).get("conditions") or {}).get("steady", True))


def _doubt(jobs: Sequence[Row]) -> str:
    """Why the whole model cannot decide."""
    for job in jobs:
        if job["model_us"] is None:
            return f"the whole model of {job['id']} was not timed"
    for job in jobs:
        if not job["steady"]:
            return f"the whole model of {job['id']} was timed on a busy host"
    return ""


def _close(first: Row, second: Row, key: str) -> bool:
    if key == "model_us":
        return bool(second["interval_us"][0] <= first["interval_us"][1])
    return float(second[key]) <= float(first[key]) * CLOSE


def _told(first: Row, second: Row, key: str, close: bool) -> str:
    if close:
        return f"{first['id']} and {second['id']} are too close to tell"
    return f"{first['id']} is the fastest, {second[key] / first[key]:.2f} times faster than {second['id']}"


def _note(first: Row, second: Row, other: str, name: str, because: str, close: bool) -> str:
    """Where the other figure would have the second first."""
    if close or first[other] is None or second[other] is None or first[other] <= second[other]:
        return ""
    return f"{name} says otherwise ({first[other] / second[other]:.2f} times slower): {because}"
