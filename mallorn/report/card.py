"""A job as notebooks show it: how it stands, its curve and its heaviest tasks."""

from collections.abc import Sequence
from typing import Any, Final

from mallorn.core.race import beside_onnxruntime
from mallorn.core.values.report import FinishReport
from mallorn.report.chart import TRIALS, chart
from mallorn.report.html import Html, el
from mallorn.report.style import scoped
from mallorn.report.tables import facts, table
from mallorn.report.verdict import verdict
from mallorn.results.comparison import measured_us
from mallorn.results.history import curve
from mallorn.wording.units import duration, first_line, latency, spent_of

SHOWN: Final = 8
COLUMNS: Final = {
    "index": "ID",
    "name": "Task",
    "weight": "Weight",
    "latency_us": "Latency (us)",
    "share": "Of the total",
    "trials": "Trials",
    "state": "State",
}
Row = dict[str, Any]


def card(job: Row, tasks: Sequence[Row], rounds: Sequence[Row], note: str = "") -> Html:
    """What `_repr_html_` returns."""
    return el(
        "div",
        el("style", scoped(".mallorn-job")),
        el("strong", f"{job['name']}, job {job['id']}: {job['state']}"),
        el("p", note, class_="note") if note else None,
        verdict(job),
        facts(_standing(job)),
        chart(curve(rounds, tasks, job["created_at"]), TRIALS),
        _heaviest(tasks),
        class_="mallorn-job",
    )


def _standing(job: Row) -> Row:
    progress = job["progress"]
    untuned, tuned = measured_us(job, "untuned"), measured_us(job, "tuned")
    failed = sum(progress["failures"].values())
    ended = job["finished_at"]
    return {
        "Trials": spent_of(job),
        "Sum over tasks": latency(progress["estimated_us"]),
        "Whole model": None if tuned is None else latency(tuned),
        "Beside onnxruntime": beside_onnxruntime(FinishReport.model_validate(job["report"] or {}).latency_us),
        "Times faster than untuned": f"{untuned / tuned:.1f}" if untuned and tuned else None,
        "Failures": failed or None,
        "Took": None if ended is None else duration(ended - job["created_at"]),
        "Why": first_line(job["reason"]),
    }


def _heaviest(tasks: Sequence[Row]) -> Html | None:
    timed = [task for task in tasks if task["weighted_latency_us"] is not None]
    total_us = sum(task["weighted_latency_us"] for task in timed)
    ranked = sorted(timed, key=lambda task: -task["weighted_latency_us"])[:SHOWN]
    rows = [{**task, "share": f"{task['weighted_latency_us'] / total_us:.0%}"} for task in ranked]
    return table(rows, COLUMNS) if rows else None
