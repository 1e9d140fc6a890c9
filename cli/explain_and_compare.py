"""Commands that explain a job, compare jobs and write a job's report."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Final

import typer

from mallorn.cli.find_client_and_job import find_job, open_reader
from mallorn.cli.terminal import output
from mallorn.client.progress_lines import describe_activity
from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.private_files import write_output
from mallorn.core.states import JobState
from mallorn.results.compare_jobs import JobComparison, Side
from mallorn.results.compare_jobs import compare as compared
from mallorn.results.decision_summary import summarise
from mallorn.wording import decision_log
from mallorn.wording.format_values import Column, format_duration, format_latency

TaskOption = Annotated[
    int | None, typer.Option("--task", min=0, help="Only rounds of the task with this ID.")
]
LastOption = Annotated[int | None, typer.Option("--last", min=1, help="Only this many of the newest rounds.")]
DIFFERENT: Final = ("search", "cost_model", "sampler", "stopping", "policy", "families", "round_size")
Line = list[str]  # a fact's name, and its value for each job


def explain(
    job: output.NewestJobArgument = None,
    task: TaskOption = None,
    last: LastOption = None,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """Show why each round of a job was planned, its forecast and its result."""
    with open_reader(*place) as api:
        handle = find_job(api, job)
        rounds, tasks, status = handle.explain(), handle.tasks(), handle.refresh()
    if task is not None and task not in {row.index for row in tasks}:
        raise NotFound(f"job {handle.id} has no task {task}", hint=f"mallorn jobs tasks {handle.id}")
    task_rounds = [row for row in rounds if task is None or row.task_index == task]
    log = task_rounds[-last:] if last else task_rounds
    summary = summarise(status, tasks, rounds)
    if as_json:
        return output.print_json({"job": handle.id, "rounds": log, "summary": summary})
    if not rounds:
        next_step = f"look at it with   mallorn show {status.id}"
        if status.state is JobState.PAUSED:
            next_step = f"go on with   mallorn resume {status.id}"
        elif status.state is JobState.TUNING:
            next_step = "it waits for the planner, which   mallorn up   starts, and also   mallorn control"
        output.print_note(
            f"no rounds yet: the job is {status.state}; {describe_activity(status) or next_step}"
        )
        return
    console = output.stdout()
    if console.is_terminal:
        console.print(output.table(decision_log.log_rows(log), decision_log.ROUND_COLUMNS))
    else:
        for line in decision_log.log_lines(log):
            console.print(line)
    console.print()
    console.print(output.table(decision_log.top_shares(summary), decision_log.SHARE_COLUMNS))
    console.print()
    for line in decision_log.summary_lines(summary):
        console.print(line)


def compare(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB JOB...", help="The ids of two or more jobs.")],
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """Compare jobs: latency, trials and seconds, latency at equal effort, and task by task."""
    if len(jobs) < 2:
        raise InvalidRequest("a comparison needs at least two jobs", hint="mallorn jobs compare JOB OTHER")
    with open_reader(*place) as api:
        handles = map(api.job, jobs)
        comparison = compared([Side.of(job.status, job.tasks(), list(job.rounds())) for job in handles])
    if as_json:
        return output.print_json(comparison)
    output.stdout().print(output.table(_comparison_lines(comparison), _columns(comparison, "JOB")))
    output.stdout().print()
    weights = [next(weight for weight in task.weight if weight is not None) for task in comparison.tasks]
    tasks = [
        _latencies(f"{task.name} x{weight}", task.latency_us, task.trials)
        for task, weight in zip(comparison.tasks, weights, strict=True)
    ]
    output.stdout().print(output.table(tasks, _columns(comparison, "TASK")))
    if judgement := comparison.judgement:
        output.stdout().print()
        # The fastest job and its figure, and a note if another figure contradicts it.
        for line in filter(None, (judgement.why, judgement.note)):
            output.stdout().print(line)
    for warning in comparison.warnings:
        output.print_note(f"beware: {warning}")


def _columns(comparison: JobComparison, first: str) -> list[Column[Line]]:
    job_columns = [Column[Line](job.id, itemgetter(i)) for i, job in enumerate(comparison.jobs, 1)]
    return [Column[Line](first, itemgetter(0)), *job_columns]


def _comparison_lines(comparison: JobComparison) -> Iterator[Line]:
    jobs = comparison.jobs
    yield ["name", *(job.name for job in jobs)]
    yield ["state", *(job.state for job in jobs)]
    for option in DIFFERENT:
        choices = [str(job.options.get(option)) for job in jobs]
        if len(set(choices)) > 1:
            yield [option.replace("_", " "), *choices]
    yield ["trials", *(f"{job.trials} ({job.failures} failed)" for job in jobs)]
    yield ["time", *("-" if job.seconds is None else format_duration(job.seconds) for job in jobs)]
    yield _latencies("model", [job.model_us for job in jobs])
    yield _latencies("sum over tasks", [job.reached_us for job in jobs])
    yield _latencies(f"after {comparison.equal_trials} trials", [job.at_equal_trials_us for job in jobs])
    yield _latencies(
        f"after {format_duration(comparison.equal_seconds)}", [job.at_equal_seconds_us for job in jobs]
    )


def _latencies(fact: str, values: Sequence[float | None], trials: Sequence[int | None] = ()) -> Line:
    first, *later_values = values
    ratios = (f" (x{value / first:.3f})" if value is not None and first else "" for value in later_values)
    texts = [
        format_latency(first),
        *(format_latency(value) + ratio for value, ratio in zip(later_values, ratios, strict=True)),
    ]
    if trials:
        texts = [
            f"{words}, {count} trials" if count else words for words, count in zip(texts, trials, strict=True)
        ]
    return [fact, *texts]


def report(
    job: output.NewestJobArgument = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; default: mallorn-JOB.html.")
    ] = None,
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """Write a job's report as one HTML file that needs no server."""
    from mallorn.report.report_page import FAILURES_READ, ReportData, render_report_page

    with open_reader(*place) as api:
        handle = find_job(api, job)
        rounds, tasks, status = list(handle.rounds(order="oldest")), handle.tasks(), handle.refresh()
        outcomes = map(Outcome, status.progress.failures)
        failed = [row for name in outcomes for row in islice(handle.records(name), FAILURES_READ)]
    story = ReportData.of(status, tasks, rounds, failed)
    file = out or Path(f"mallorn-{story.job.id}.html")
    try:
        write_output(file, render_report_page(story, time.time()))
    except OSError as error:
        raise InvalidRequest(f"cannot write {file}: {error.strerror}", hint="choose another --out") from None
    if as_json:
        output.print_json({"file": str(file)})
    else:
        output.stdout().print(str(file))
