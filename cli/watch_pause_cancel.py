"""Commands that watch, pause and cancel jobs."""

from typing import Annotated

import typer

from cli.read_only_client import check_moves, check_open, find_job, source
from cli.terminal.option_groups import shared
from cli.terminal.output import (
    JobArgument,
    JsonOption,
    NewestJobArgument,
    Place,
    print_json,
    print_json_line,
    print_note,
    stderr,
)
from cli.watch.bar_view import follow
from cli.watch.result_table import print_fetch, print_result
from mallorn.job import Job
from mallorn.progress_lines import FirstVersion


@shared
def watch(
    job: NewestJobArgument = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every event as one line of JSON.")] = False,
    *,
    place: Place,
) -> None:
    """Follow a job to its end: its curve and its tasks on a terminal, else a line now and then.

    Its result comes last. Leaving does not stop it.
    """
    with source(*place) as origin:
        handle = find_job(origin.api, job)
        check_moves(origin, handle)
        try:
            if as_json:
                for event in handle.events():
                    print_json_line({"id": event.id, "kind": event.kind, "payload": event.payload})
            else:
                first = FirstVersion(handle, f"mallorn schedules {handle.id}{origin.words}")
                follow(handle, stderr(), first, verbose=True)
        except KeyboardInterrupt:
            print_note(f"job {handle.id} goes on; stop it with   mallorn cancel {handle.id}{origin.words}")
            print_fetch(handle.status, origin.words)
            raise typer.Exit(130) from None
        handle.refresh()
        handle.raise_for_state()
        if not as_json:
            print_result(handle.status, origin.words)
            print_fetch(handle.status, origin.words)


@shared
def pause(job: JobArgument, as_json: JsonOption = False, *, place: Place) -> None:
    """Let a job's rounds in flight end and plan no more."""
    with source(*place) as origin:
        handle = origin.api.job(job)
        check_open(origin, handle)
        check_moves(origin, handle)
        handle.pause()
    _report(handle, as_json, f"paused; go on with   mallorn resume {handle.id}{origin.words}")


@shared
def cancel(job: JobArgument, as_json: JsonOption = False, *, place: Place) -> None:
    """End a job now; its measurements stay in the dataset."""
    with source(*place) as origin:
        handle = origin.api.job(job)
        check_open(origin, handle)
        handle.cancel()
    _report(
        handle, as_json, f"cancelled; what it measured stays: mallorn records --job {handle.id}{origin.words}"
    )
    if not as_json:
        print_fetch(handle.status, origin.words)


def _report(job: Job, as_json: bool, note: str) -> None:
    if as_json:
        print_json(job.body)
    else:
        print_note(note)
