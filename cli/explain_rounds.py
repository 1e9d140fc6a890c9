"""The command that tells why every round of a job was made and what came of it."""

from collections.abc import Sequence
from typing import Annotated

import typer

from cli.service.read_only_client import find_job, reader
from cli.terminal.option_groups import shared
from cli.terminal.output import JsonOption, NewestJobArgument, Place, print_json, print_note, stdout, table
from cli.watch.status_text import words
from mallorn.core.errors import NotFound
from mallorn.core.states import JobState
from mallorn.core.values.decision_log import LoggedRound
from mallorn.core.values.job import JobStatus, TaskStatus
from mallorn.results.decision_summary import DecisionSummary, summarise
from mallorn.wording.decision_log import ROUND_COLUMNS, log_lines, log_rows
from mallorn.wording.decision_summary import SHARE_COLUMNS, summary_lines, top_shares

TaskOption = Annotated[
    int | None, typer.Option("--task", min=0, help="Only rounds of the task with this ID.")
]
LastOption = Annotated[int | None, typer.Option("--last", min=1, help="Only the newest so many rounds.")]


@shared
def explain(
    job: NewestJobArgument = None,
    task: TaskOption = None,
    last: LastOption = None,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Tell why every round of a job was made, what was expected of it and what it brought."""
    with reader(*place) as api:
        handle = find_job(api, job)
        rounds, tasks, status = handle.explain(), handle.tasks(), handle.refresh()
    shown = _wanted(rounds, tasks, handle.id, task, last)
    summary = summarise(status, tasks, rounds)
    if as_json:
        print_json({"job": handle.id, "rounds": shown, "summary": summary})
    elif rounds:
        _print_log(shown)
        _print_summary(summary)
    else:
        print_note(f"no rounds yet: the job is {status.state}; {_what_it_waits_for(status)}")


def _wanted(
    rounds: Sequence[LoggedRound],
    tasks: Sequence[TaskStatus],
    job_id: str,
    task: int | None,
    last: int | None,
) -> list[LoggedRound]:
    if task is not None and task not in {known.index for known in tasks}:
        raise NotFound(f"job {job_id} has no task {task}", hint=f"mallorn tasks {job_id}")
    of_task = [row for row in rounds if task is None or row.task_index == task]
    return of_task[-last:] if last else of_task


def _print_log(rounds: Sequence[LoggedRound]) -> None:
    console = stdout()
    if console.is_terminal:
        console.print(table(log_rows(rounds), ROUND_COLUMNS))
        return
    for line in log_lines(rounds):
        console.print(line, markup=False)


def _print_summary(summary: DecisionSummary) -> None:
    console = stdout()
    console.print()
    console.print(table(top_shares(summary), SHARE_COLUMNS))
    console.print()
    for line in summary_lines(summary):
        console.print(line, markup=False)


def _what_it_waits_for(job: JobStatus) -> str:
    if said := words(job):
        return said
    if job.state is JobState.PAUSED:
        return f"go on with   mallorn resume {job.id}"
    if job.state is JobState.TUNING:
        return "waits for the planner, which is part of   mallorn up   and else started by   mallorn control"
    return f"look at it with   mallorn show {job.id}"
