"""The command that tells why every round of a job was made and what came of it."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cli.service.reading import find_job, reader
from cli.terminal.output import (
    JsonOption,
    NewestJobArgument,
    Place,
    print_json,
    print_note,
    stdout,
    table,
)
from cli.terminal.shared import shared
from cli.watching.standing import words
from mallorn.core.errors import NotFound
from mallorn.core.states import JobState
from mallorn.results.decisions import summarise
from mallorn.wording.rounds import ROUND_COLUMNS, log_lines, log_rows
from mallorn.wording.summaries import SHARE_COLUMNS, share_rows, summary_lines

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
        rounds, tasks, body = handle.explain(), handle.tasks(), handle.refresh()
    shown = _wanted(rounds, tasks, handle.id, task, last)
    summary = summarise(body, tasks, rounds)
    if as_json:
        print_json({"job": body["id"], "rounds": shown, "summary": summary})
    elif rounds:
        _print_log(shown)
        _print_summary(summary)
    else:
        print_note(f"no rounds yet: the job is {body['state']}; {_what_it_waits_for(body)}")


def _wanted(
    rounds: Sequence[dict[str, Any]],
    tasks: Sequence[dict[str, Any]],
    job_id: str,
    task: int | None,
    last: int | None,
) -> list[dict[str, Any]]:
    if task is not None and task not in {known["index"] for known in tasks}:
        raise NotFound(f"job {job_id} has no task {task}", hint=f"mallorn tasks {job_id}")
    of_task = [row for row in rounds if task is None or row["task_index"] == task]
    return of_task[-last:] if last else of_task


def _print_log(rounds: Sequence[dict[str, Any]]) -> None:
    console = stdout()
    if console.is_terminal:
        console.print(table(log_rows(rounds), ROUND_COLUMNS))
        return
    for line in log_lines(rounds):
        console.print(line, markup=False)


def _print_summary(summary: dict[str, Any]) -> None:
    console = stdout()
    console.print()
    console.print(table(share_rows(summary), SHARE_COLUMNS))
    console.print()
    for line in summary_lines(summary):
        console.print(line, markup=False)


def _what_it_waits_for(body: dict[str, Any]) -> str:
    if said := words(body):
        return said
    if body["state"] == JobState.PAUSED:
        return f"go on with   mallorn resume {body['id']}"
    if body["state"] == JobState.TUNING:
        return "waits for the planner, which is part of   mallorn up   and else started by   mallorn control"
    return f"look at it with   mallorn show {body['id']}"
