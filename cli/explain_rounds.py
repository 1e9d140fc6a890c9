"""The command that explains why each round of a job was run and what it achieved."""

from typing import Annotated

import typer

from cli.read_only_client import find_job, reader
from cli.terminal.option_groups import shared
from cli.terminal.output import JsonOption, NewestJobArgument, Place, print_json, print_note, stdout, table
from mallorn.core.errors import NotFound
from mallorn.core.states import JobState
from mallorn.core.values.job import JobStatus
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
    if task is not None and task not in {each.index for each in tasks}:
        raise NotFound(f"job {handle.id} has no task {task}", hint=f"mallorn tasks {handle.id}")
    of_task = [row for row in rounds if task is None or row.task_index == task]
    selected = of_task[-last:] if last else of_task
    summary = summarise(status, tasks, rounds)
    if as_json:
        print_json({"job": handle.id, "rounds": selected, "summary": summary})
        return
    if not rounds:
        print_note(f"no rounds yet: the job is {status.state}; {_what_it_waits_for(status)}")
        return
    console = stdout()
    if console.is_terminal:
        console.print(table(log_rows(selected), ROUND_COLUMNS))
    else:
        for line in log_lines(selected):
            console.print(line, markup=False)
    console.print()
    console.print(table(top_shares(summary), SHARE_COLUMNS))
    console.print()
    for line in summary_lines(summary):
        console.print(line, markup=False)


def _what_it_waits_for(job: JobStatus) -> str:
    if reason := words(job):
        return reason
    if job.state is JobState.PAUSED:
        return f"go on with   mallorn resume {job.id}"
    if job.state is JobState.TUNING:
        return "waits for the planner, which is part of   mallorn up   and else started by   mallorn control"
    return f"look at it with   mallorn show {job.id}"
