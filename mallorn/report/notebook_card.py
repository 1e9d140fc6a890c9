"""A job's card for notebooks: state, curve and heaviest tasks, updated while the job runs."""

from collections.abc import Sequence
from typing import Final

from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.core.values.verdict import Verdict
from mallorn.report.chart import TRIALS, chart
from mallorn.report.html_elements import Html, el, render_facts, table
from mallorn.report.style_and_csp import scope_style_rules
from mallorn.results.best_so_far_curve import curve
from mallorn.results.speedup import compare_with_onnxruntime
from mallorn.wording.format_values import (
    Cell,
    Column,
    describe_headroom,
    format_duration,
    format_latency,
    format_spent_trials,
)

SHOWN: Final = 8


def verdict(judged: Verdict | None) -> Html | None:
    """Return a job's verdict and next command as HTML."""
    if judged is None:
        return None
    next_step = el("p", "Next: ", el("code", judged.next_command)) if judged.next_command else None
    return el("div", el("p", el("strong", judged.summary)), next_step, class_=f"verdict {judged.level}")


def card(job: JobStatus, tasks: Sequence[TaskStatus], rounds: Sequence[RoundStatus], note: str = "") -> Html:
    """Return the HTML card of a job, for `_repr_html_`."""
    tuned_us, finished_at = job.median_us("tuned"), job.finished_at
    figures: dict[str, Cell] = {
        "Trials": format_spent_trials(job),
        "Sum over tasks": format_latency(job.progress.estimated_us),
        "Headroom": describe_headroom(job) or None,
        "Whole model": None if tuned_us is None else format_latency(tuned_us),
        "Beside onnxruntime": str(compare_with_onnxruntime(job.finish_report.latency_us) or ""),
        "Failures": sum(job.progress.failures.values()) or None,
        "Took": None if finished_at is None else format_duration(finished_at - job.created_at),
        "Why": job.explanation,
    }
    rows = [(task.weighted_latency_us, task) for task in tasks if task.weighted_latency_us is not None]
    total_us = sum(time_us for time_us, _ in rows)
    columns = (
        Column[tuple[float, TaskStatus]]("ID", lambda row: row[1].index),
        Column[tuple[float, TaskStatus]]("Task", lambda row: row[1].name),
        Column[tuple[float, TaskStatus]]("Weight", lambda row: row[1].weight),
        Column[tuple[float, TaskStatus]]("Latency (us)", lambda row: row[1].latency_us),
        Column[tuple[float, TaskStatus]]("Of the total", lambda row: f"{row[0] / total_us:.0%}"),
        Column[tuple[float, TaskStatus]]("Trials", lambda row: row[1].trials),
        Column[tuple[float, TaskStatus]]("State", lambda row: row[1].state),
    )
    heaviest = sorted(rows, key=lambda row: -row[0])[:SHOWN]
    return el(
        "div",
        el("style", scope_style_rules(".mallorn-job")),
        el("strong", f"{job.name}, job {job.id}: {job.state}"),
        el("p", note, class_="note") if note else None,
        verdict(job.verdict),
        render_facts(figures),
        chart(curve(rounds, tasks, job.created_at), TRIALS),
        table(heaviest, columns) if heaviest else None,
        class_="mallorn-job",
    )


def in_notebook() -> bool:
    """Return whether this Python runs in a notebook kernel such as Jupyter's."""
    try:
        from IPython import get_ipython
    except ModuleNotFoundError:
        return False
    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None
