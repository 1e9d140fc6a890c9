"""The end of `tune` and `resume`: follow a job, fetch its schedules, print what was won."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from cli.terminal.output import print_json, print_note, stderr
from cli.watch.bar_view import follow
from cli.watch.result_table import print_winnings
from mallorn.core.allowed_classes import own_classes
from mallorn.core.errors import Conflict, MallornError
from mallorn.core.registry import WORDS
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
            follow(job, stderr(), self.verbose)
        job.raise_for_state()
        job.schedules(self.directory)
        if self.as_json:
            print_json({**job.body, "directory": str(self.directory)})
        else:
            print_winnings(job.status, self.directory, self.model, self.again)

    @contextmanager
    def pausing(self, job: Job) -> Iterator[None]:
        """Ctrl-C pauses the job, and leaves with code 130."""
        try:
            yield
        except KeyboardInterrupt:
            _pause(job, self.again)
            raise typer.Exit(130) from None


def _pause(job: Job, again: Sequence[str]) -> None:
    command = shlex.join(["mallorn", "resume", job.id, *again])
    try:
        job.pause()
    except Conflict:
        print_note("\nstopped; the job had just ended")
        print_note(f"see how, and fetch the schedules, with   {command}")
        return
    except MallornError as error:
        print_note(f"\nstopped following; the job could not be paused: {error.message}")
        print_note(f"look at it with   mallorn show {job.id}")
        return
    print_note(f"\nstopped; what was measured is kept. Go on with   {command}")
