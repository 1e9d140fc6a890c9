"""The end of `tune` and `resume`: follow a job, fetch its schedules, print what was won."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from mallorn.commands.output import print_json, print_note, stderr
from mallorn.commands.progress import follow
from mallorn.commands.winnings import print_winnings
from mallorn.core.errors import InvalidRequest, MallornError
from mallorn.job import Job


@dataclass(frozen=True)
class Ending:
    """What to do with a job that is followed to its end."""

    directory: Path
    model: str  # as the user would type it
    verbose: bool = False
    as_json: bool = False
    again: tuple[str, ...] = ()  # what `mallorn resume JOB` needs besides

    def reach(self, job: Job) -> None:
        """Follow, fetch and print. Ctrl-C pauses the job and leaves with code 130."""
        print_note(f"its page: {job.page}")
        try:
            follow(job, stderr(), self.verbose)
        except KeyboardInterrupt:
            _pause(job, self.again)
            raise typer.Exit(130) from None
        job.raise_for_state()
        job.schedules(self.directory)
        if self.as_json:
            print_json({**job.body, "directory": str(self.directory)})
        else:
            print_winnings(job.body, self.directory, self.model)


def prepare_directory(directory: Path) -> Path:
    """Make the directory for the schedules; InvalidRequest now is better than after an hour."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(
            f"cannot create {directory}: {error.strerror}", hint="choose another --out"
        ) from None
    return directory


def _pause(job: Job, again: Sequence[str]) -> None:
    try:
        job.pause()
    except MallornError as error:
        print_note(f"\nstopped following; the job could not be paused: {error.message}")
        print_note(f"look at it with   mallorn show {job.id}")
        return
    command = shlex.join(["mallorn", "resume", job.id, *again])
    print_note(f"\nstopped; what was measured is kept. Go on with   {command}")
