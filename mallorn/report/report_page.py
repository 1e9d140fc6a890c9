"""HTML report of one job as a single file: its data, its sections and the document."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from mallorn.core.outcomes import NOT_COMPILED
from mallorn.core.registry import list_names
from mallorn.core.values.dataset import Record
from mallorn.core.values.decision_log import LoggedRound, RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.core.version import VERSION
from mallorn.report.chart import SECONDS, TRIALS, chart
from mallorn.report.html_elements import Html, el, render_facts, table
from mallorn.report.notebook_card import verdict
from mallorn.report.style_and_csp import PAGE, POLICY
from mallorn.results.best_so_far_curve import CurvePoint, curve
from mallorn.results.decision_summary import add_total_latencies, summarise
from mallorn.wording.decision_log import ROUND_COLUMNS, SHARE_COLUMNS, log_rows, summary_lines, top_shares
from mallorn.wording.describe_results import (
    ANSWER_COLUMNS,
    ENGINES,
    describe_stock_comparison,
    describe_unbuilt,
    describe_warnings,
    engine_columns,
    latency_rows,
    task_columns,
)
from mallorn.wording.describe_results import describe_result as job_facts
from mallorn.wording.format_values import (
    AUTO,
    Column,
    describe_headroom,
    first_line,
    format_duration,
    format_latency,
    format_moment,
    format_spent_trials,
)

FAILURES_READ: Final = 500  # newest failures read for each outcome


@dataclass(frozen=True)
class Failure:
    """Candidates that failed with the same outcome and error message."""

    outcome: str
    words: str
    count: int
    tasks: tuple[str, ...]
    example: str


@dataclass(frozen=True)
class ReportData:
    """A job, its tasks, its rounds (oldest first) with latency totals, and its failures."""

    job: JobStatus
    tasks: Sequence[TaskStatus]
    rounds: Sequence[LoggedRound]
    failures: Sequence[Failure]

    @classmethod
    def of(
        cls,
        job: JobStatus,
        tasks: Sequence[TaskStatus],
        rounds: Iterable[RoundStatus],
        failed: Iterable[Record],
    ) -> "ReportData":
        """Build the data from a job, its tasks, rounds (oldest first) and failed records."""
        return cls(job, tasks, add_total_latencies(rounds, tasks), grouped(failed))

    @property
    def points(self) -> list[CurvePoint]:
        return curve(self.rounds, self.tasks, self.job.created_at)


def grouped(failed: Iterable[Record]) -> list[Failure]:
    """Group failures by outcome and first line of the error, most frequent first.

    Candidates left unbuilt on purpose are skipped, although their outcome is a build error.
    """
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in failed:
        if not (record.error or "").startswith(NOT_COMPILED):
            groups[record.outcome, first_line(record.error or "")].append(record)
    failures = [
        Failure(
            outcome,
            words,
            len(records),
            tuple(sorted({record.workload_name for record in records})),
            records[0].error or "",
        )
        for (outcome, words), records in groups.items()
    ]
    return sorted(failures, key=lambda failure: (-failure.count, failure.outcome, failure.words))


Section = Callable[[ReportData], Html | None]
FAMILIES: Final = (
    Column[TaskStatus]("Family", lambda task: task.family),
    Column[TaskStatus]("At rest because", lambda task: task.reason),
)


def _message(failure: Failure) -> Html | str:
    if failure.example.strip() == failure.words:
        return failure.words
    return el("details", el("summary", failure.words), el("pre", failure.example))


FAILED: Final = (
    Column[Failure]("Outcome", lambda failure: failure.outcome),
    Column[Failure]("Candidates", lambda failure: failure.count),
    Column[Failure]("Tasks", lambda failure: ", ".join(failure.tasks)),
    Column[Failure]("What was said", _message),
)


def render_summary(story: ReportData) -> Html:
    """Return the section on the job's state, budget, results and options."""
    job, progress = story.job, story.job.progress
    finished_at, measurer = job.finished_at, job.options.measurer
    # Options of a measurer are shown only if the job uses it.
    others = {*list_names("measurer")} - {measurer}
    options = {name: value for name, value in job.sent_options().items() if name not in others}
    rows = {
        "State": job.state,
        "Why": job.explanation,
        "Model": job.model_id,
        "Target": job.target,
        "Budget": AUTO if job.has_auto_budget else None,
        "Trials": format_spent_trials(job),
        "Took": None if finished_at is None else format_duration(finished_at - job.created_at),
        "Tasks timed": f"{progress.tasks_measured} of {progress.tasks}",
        "Sum over tasks": None if progress.estimated_us is None else format_latency(progress.estimated_us),
        "Headroom": describe_headroom(job) or None,
        "Stock's tuner": describe_stock_comparison(story.tasks) or None,
        **{name.replace("_", " "): _option(value) for name, value in options.items()},
    }
    return el("section", el("h2", "Summary"), render_facts(rows))


def _option(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {member}" for key, member in value.items())
    return "" if value is None or value == [] else str(value)


def render_engines(story: ReportData) -> Html | None:
    """Return the section on the whole model: latency by engine, notes; None if empty."""
    report = story.job.finish_report
    rows = latency_rows(report.latency_us)
    if not (rows or report.skipped_steps or report.unmeasured_schedules):
        return None
    known_warnings = set(describe_warnings(story.job))
    lines = [line for line in job_facts(story.job) if line not in known_warnings]
    if report.conditions is not None:
        lines.append(report.disturbance_text or "the host was quiet while it was timed")
    notes = (el("p", line, class_="note") for line in lines)
    latency_table = table(rows, engine_columns(report.latency_us)) if rows else None
    return el("section", el("h2", "The whole model"), latency_table, notes)


def render_curves(story: ReportData) -> Html | None:
    """Return the best-so-far charts by trials and by time; None if both are empty."""
    median_us = {ENGINES[key]: story.job.median_us(key) for key in ("untuned", "onnxruntime")}
    reference_us = {name: value for name, value in median_us.items() if value is not None}
    charts = [chart(story.points, axis, reference_us) for axis in (TRIALS, SECONDS)]
    if not any(charts):
        return None
    caption = "The sum over tasks of best latency times weight, after every round that ended."
    return el("section", el("h2", "Best so far"), el("p", caption, class_="note"), charts)


def render_tasks(story: ReportData) -> Html | None:
    """Return the section with MetaSchedule's table of tasks; None without tasks."""
    if not story.tasks:
        return None
    return el("section", el("h2", "Tasks"), table(story.tasks, [*task_columns(story.tasks), *FAMILIES]))


def render_answer_sources(story: ReportData) -> Html | None:
    """Return the section on what unmeasured schedules rest on; None if the job measured."""
    rows = story.job.finish_report.unmeasured_schedules.items()
    return el("section", el("h2", "What answered"), table(rows, ANSWER_COLUMNS)) if rows else None


def render_decisions(story: ReportData) -> Html | None:
    """Return the section on why each round was planned and its gain; None without rounds."""
    if not story.rounds:
        return None
    decision_summary = summarise(story.job, story.tasks, story.rounds)
    return el(
        "section",
        el("h2", "Decisions"),
        table(top_shares(decision_summary), SHARE_COLUMNS),
        el("ul", (el("li", line) for line in summary_lines(decision_summary))),
        el("details", el("summary", "Every round"), table(log_rows(story.rounds), ROUND_COLUMNS)),
    )


def render_failures(story: ReportData) -> Html:
    """Return the section on failed candidates, with their error messages."""
    note = describe_unbuilt(story.job.progress)
    content = table(story.failures, FAILED) if story.failures else el("p", "No candidate failed.")
    return el("section", el("h2", "Failures"), content, el("p", f"{note}.") if note else None)


def render_warnings(story: ReportData) -> Html | None:
    """Return the section on the job's warnings; None if there are none."""
    lines = describe_warnings(story.job)
    return (
        el("section", el("h2", "Warnings"), el("ul", (el("li", line) for line in lines))) if lines else None
    )


def render_apply_commands(story: ReportData) -> Html:
    """Return the section with the commands that apply the job's schedules."""
    job_id = story.job.id
    if not story.job.exported:
        words = f"The job has not exported its schedules: it is {story.job.state}."
        return el("section", el("h2", "Use the schedules"), el("p", words))
    lines = (
        f"mallorn schedules {job_id} --out tuned",
        "python tuned/apply.py model.onnx --check        # with stock TVM alone",
        "mallorn compile model.onnx --schedules tuned -o model.so",
        "mallorn bench model.onnx --schedules tuned --untuned",
    )
    return el("section", el("h2", "Use the schedules"), el("pre", "\n".join(lines)))


SECTIONS: Final[tuple[Section, ...]] = (
    render_summary,
    render_engines,
    render_warnings,
    render_curves,
    render_answer_sources,
    render_tasks,
    render_decisions,
    render_failures,
    render_apply_commands,
)


def render_report_page(story: ReportData, written_at: float) -> str:
    """Return the whole report as HTML; `written_at` is in seconds since the epoch."""
    title = f"{story.job.name}: job {story.job.id}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width"),
        el("title", title),
        el("style", PAGE),
    )
    body = el(
        "body",
        el("h1", title),
        el("p", f"written by Mallorn {VERSION}, {format_moment(written_at)} UTC", class_="note"),
        verdict(story.job.verdict),
        el("main", (section(story) for section in SECTIONS)),
    )
    return Html("<!doctype html>\n") + el("html", head, body, lang="en") + "\n"
