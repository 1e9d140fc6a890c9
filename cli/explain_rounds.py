"""The command that explains why each round of a job was run and what it achieved."""

from typing import Annotated

import typer

from cli.read_only_client import find_job, reader
from cli.terminal.option_groups import shared
from cli.terminal.output import JsonOption, NewestJobArgument, Place, print_json, print_note, stdout, table
from mallorn.core.errors import NotFound
from mallorn.core.states import JobState
from mallorn.progress_lines import words
from mallorn.results.decision_summary import summarise
from mallorn.wording.decision_log import (
    ROUND_COLUMNS,
    SHARE_COLUMNS,
    log_lines,
    log_rows,
    summary_lines,
    top_shares,
)

TaskOption = Annotated[
    int | None, typer.Option("--task", min=0, help="Only rounds of the task with this ID.")
]
LastOption = Annotated[int | None, typer.Option("--last", min=1, help="Only this many of the newest rounds.")]


@shared
def explain(
    job: NewestJobArgument = None,
    task: TaskOption = None,
    last: LastOption = None,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Show why each round of a job was planned, its forecast and its result."""
    with reader(*place) as api:
        handle = find_job(api, job)
        rounds, tasks, status = handle.explain(), handle.tasks(), handle.refresh()
    if task is not None and task not in {row.index for row in tasks}:
        raise NotFound(f"job {handle.id} has no task {task}", hint=f"mallorn tasks {handle.id}")
    task_rounds = [row for row in rounds if task is None or row.task_index == task]
    log = task_rounds[-last:] if last else task_rounds
    summary = summarise(status, tasks, rounds)
    if as_json:
        print_json({"job": handle.id, "rounds": log, "summary": summary})
        return
    if not rounds:
        next_step = f"look at it with   mallorn show {status.id}"
        if status.state is JobState.PAUSED:
            next_step = f"go on with   mallorn resume {status.id}"
        elif status.state is JobState.TUNING:
            next_step = "it waits for the planner, which   mallorn up   starts, and also   mallorn control"
        print_note(f"no rounds yet: the job is {status.state}; {words(status) or next_step}")
        return
    console = stdout()
    if console.is_terminal:
        console.print(table(log_rows(log), ROUND_COLUMNS))
    else:
        for line in log_lines(log):
            console.print(line, markup=False)
    console.print()
    console.print(table(top_shares(summary), SHARE_COLUMNS))
    console.print()
    for line in summary_lines(summary):
        console.print(line, markup=False)
