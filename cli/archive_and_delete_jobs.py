"""Commands that archive jobs, delete jobs and delete models."""

import sys
from typing import Annotated

import typer

from cli.terminal.option_groups import shared
from cli.terminal.output import JsonOption, Place, client, print_json, print_note
from mallorn.core.errors import InvalidRequest

JobsArgument = Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of jobs that have ended.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@shared
def rm(
    jobs: JobsArgument,
    yes: YesOption = False,
    export: Annotated[
        bool, typer.Option("--export", help="Delete their exported files alone; the jobs stay.")
    ] = False,
    *,
    place: Place,
) -> None:
    """Delete jobs that have ended, with their logs and exported files. What they measured stays."""
    subject, words = ("the exported files of ", "--export ") if export else ("", "")
    with client(*place) as api:
        handles = [api.job(job) for job in jobs]
        names = ", ".join(f"{job.id} ({job.status.name}, {job.status.state})" for job in handles)
        ask(f"Delete {subject}{names}?", f"mallorn rm {words}{' '.join(jobs)} --yes{_at(place)}", yes)
        note = "the job stays: mallorn show" if export else "what it measured stays: mallorn records --job"
        for job in handles:
            job.delete_export() if export else job.delete()
            print_note(f"deleted {subject}{job.id}; {note} {job.id}{_at(place)}")


@shared
def archive(
    jobs: JobsArgument,
    undo: Annotated[bool, typer.Option("--undo", help="Put them back into the list.")] = False,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Take jobs that have ended out of the list. Everything of them stays."""
    with client(*place) as api:
        handles = [api.job(job) for job in jobs]
        for job in handles:
            job.unarchive() if undo else job.archive()
    if as_json:
        print_json([job.body for job in handles])
        return
    for job in handles:
        note = "is in the list again: mallorn jobs" if undo else "is archived: mallorn jobs --archived"
        print_note(f"{job.id} {note}{_at(place)}")


@shared
def rm_models(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Ids of uploaded models.")],
    yes: YesOption = False,
    *,
    place: Place,
) -> None:
    """Delete uploaded models that no job refers to."""
    with client(*place) as api:
        ask(f"Delete {', '.join(models)}?", f"mallorn models rm {' '.join(models)} --yes{_at(place)}", yes)
        for model in models:
            api.delete_model(model)
            print_note(f"deleted {model}")


def _at(place: Place) -> str:
    """Return the option with which the next command finds the same data directory."""
    return f" --data {place.data}" if place.data else ""


def ask(question: str, without_asking: str, yes: bool) -> None:
    """Exit with code 1 unless the user agrees. Raises InvalidRequest without a terminal."""
    if yes:
        return
    if not is_terminal():
        raise InvalidRequest("there is no terminal to ask at, and nothing was deleted", hint=without_asking)
    if not typer.confirm(question, err=True):
        print_note("nothing was deleted")
        raise typer.Exit(1)


def is_terminal() -> bool:
    """Return whether stdin is a terminal, so that a user can answer."""
    return sys.stdin.isatty()
