"""A job as notebooks show it: how it stands, its curve and its heaviest tasks; renewed while it runs."""

import time
from collections.abc import Sequence
from typing import Final, Protocol

from mallorn.core.errors import InvalidRequest
from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.core.values.verdict import Verdict
from mallorn.report.chart import TRIALS, chart
from mallorn.report.html import Html, el, facts, table
from mallorn.report.style_and_csp import scoped
from mallorn.results.best_so_far_curve import curve
from mallorn.results.speedup import beside_onnxruntime
from mallorn.wording.format_values import Cell, Column, duration, first_line, headroom, latency, spent_of

SHOWN: Final = 8
UPDATE_SEC: Final = 2.0


def verdict(known: Verdict | None) -> Html | None:
    """What the figures mean, and the command to type next."""
    if known is None:
        return None
    following = el("p", "Next: ", el("code", known.next)) if known.next else None
    return el("div", el("p", el("strong", known.summary)), following, class_=f"verdict {known.level}")


def card(job: JobStatus, tasks: Sequence[TaskStatus], rounds: Sequence[RoundStatus], note: str = "") -> Html:
    """What `_repr_html_` returns."""
    return el(
        "div",
        el("style", scoped(".mallorn-job")),
        el("strong", f"{job.name}, job {job.id}: {job.state}"),
        el("p", note, class_="note") if note else None,
        verdict(job.verdict),
        facts(_standing(job)),
        chart(curve(rounds, tasks, job.created_at), TRIALS),
        _heaviest(tasks),
        class_="mallorn-job",
    )


def _standing(job: JobStatus) -> dict[str, Cell]:
    untuned, tuned = job.median_us("untuned"), job.median_us("tuned")
    ended = job.finished_at
    return {
        "Trials": spent_of(job),
        "Sum over tasks": latency(job.progress.estimated_us),
        "Headroom": headroom(job) or None,
        "Whole model": None if tuned is None else latency(tuned),
        "Beside onnxruntime": str(beside_onnxruntime(job.finish_report.latency_us) or ""),
        "Times faster than untuned": f"{untuned / tuned:.1f}" if untuned and tuned else None,
        "Failures": sum(job.progress.failures.values()) or None,
        "Took": None if ended is None else duration(ended - job.created_at),
        "Why": first_line(job.reason),
    }


def _heaviest(tasks: Sequence[TaskStatus]) -> Html | None:
    timed = [(task.weighted_latency_us, task) for task in tasks if task.weighted_latency_us is not None]
    total_us = sum(time_us for time_us, _ in timed)
    ranked = sorted(timed, key=lambda each: -each[0])[:SHOWN]
    columns = (
        Column[tuple[float, TaskStatus]]("ID", lambda each: each[1].index),
        Column[tuple[float, TaskStatus]]("Task", lambda each: each[1].name),
        Column[tuple[float, TaskStatus]]("Weight", lambda each: each[1].weight),
        Column[tuple[float, TaskStatus]]("Latency (us)", lambda each: each[1].latency_us),
        Column[tuple[float, TaskStatus]]("Of the total", lambda each: f"{each[0] / total_us:.0%}"),
        Column[tuple[float, TaskStatus]]("Trials", lambda each: each[1].trials),
        Column[tuple[float, TaskStatus]]("State", lambda each: each[1].state),
    )
    return table(ranked, columns) if ranked else None


class Card(Protocol):
    """What shows itself anew each time it is looked at: a `mallorn.Job`."""

    @property
    def status(self) -> JobStatus: ...

    @property
    def stuck(self) -> bool: ...

    def _repr_html_(self) -> str: ...


def in_notebook() -> bool:
    """Whether this Python is one that shows what it is given, as Jupyter's kernel."""
    try:
        from IPython import get_ipython
    except ModuleNotFoundError:
        return False
    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def watch(job: Card) -> None:
    """Show a job's card below the cell and renew it in place until the job ends.

    Raises InvalidRequest outside of a notebook.
    """
    if not in_notebook():
        raise InvalidRequest("there is no notebook here to show the job in", hint="job.wait()")
    from IPython.display import HTML, display

    shown = display(HTML(job._repr_html_()), display_id=True)
    while not (job.stuck or job.status.state.final):
        time.sleep(UPDATE_SEC)
        shown.update(HTML(job._repr_html_()))
