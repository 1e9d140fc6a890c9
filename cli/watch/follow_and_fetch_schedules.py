"""The end of `tune` and `resume`: follow a job, fetch its schedules, print what was won."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from cli.terminal.output import print_json, print_note, stderr
from cli.watch.bar_view import follow
from cli.watch.result_table import print_winnings
from mallorn.check_output_directory import holds_schedules_of
from mallorn.core.allowed_classes import own_classes
from mallorn.core.errors import Conflict, MallornError
from mallorn.core.registry import WORDS
from mallorn.first_version import FirstVersion
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
        """Follow, fetch and print."""
        with self.pausing(job):
            print_note(f"its page: {job.page}")
            for seam, name in own_classes(job.status.options):
                print_note(
                    f"the {WORDS[seam]} {name} is none of Mallorn's: the service imports and runs it as it is"
                )
            follow(job, stderr(), FirstVersion(job, self.directory), self.verbose)
        job.raise_for_state()
        job.schedules(self.directory)
        if self.as_json:
            print_json({**job.body, "directory": str(self.directory)})
        else:
            print_winnings(job.status, self.directory, self.model, self.again)

    @contextmanager
    def pausing(self, job: Job) -> Iterator[None]:
        """Ctrl-C pauses the job, says what there is of it already, and leaves with code 130."""
        try:
            yield
        except KeyboardInterrupt:
            print_note(f"\n{_pause(job)}   {shlex.join(['mallorn', 'resume', job.id, *self.again])}")
            FirstVersion(job, self.directory).news(job.status)  # it may just have come, or be half fetched
            if holds_schedules_of(self.directory, job.id):
                check = f"python {self.directory / 'apply.py'} {self.model} --check"
                print_note(f"{self.directory} holds a version that works. Check it with   {check}")
            raise typer.Exit(130) from None


def _pause(job: Job) -> str:
    """What became of the job, and what its `mallorn resume` does."""
    try:
        job.pause()
    except Conflict:
        return "stopped; the job had just ended. See how, and fetch the schedules, with"
    except MallornError as error:
        return f"stopped following; the job could not be paused: {error.message}. Follow it again with"
    return "stopped; what was measured is kept. Go on with"
