"""The commands that tune a model or resume its job, follow it and fetch its schedules."""

import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from mallorn.cli.host_checks import check_host
from mallorn.cli.live_view import show_until_ended
from mallorn.cli.print_job_result import command_that_checks, print_tuned_job
from mallorn.cli.several_targets import Body, finish_each
from mallorn.cli.terminal import job_options
from mallorn.cli.terminal.output import JobArgument, JsonOption, Place, print_json, print_note, stderr
from mallorn.cli.terminal.progress_bars import upload_with_bar
from mallorn.client import out_directory
from mallorn.client.job import Job
from mallorn.client.local_service import connected_stack, resolve_requested_target, resolve_target_to_submit
from mallorn.client.model_upload import find_free_inputs
from mallorn.client.onnx_export import as_onnx, find_model_file
from mallorn.client.progress_lines import FirstExport
from mallorn.core.check_option_kwargs import (
    OptionKwargs,
    check_option_kwargs,
    free_dimensions_error,
    guess_sizes,
)
from mallorn.core.check_plugin_classes import list_user_classes
from mallorn.core.errors import Conflict, ExitCode, MallornError
from mallorn.core.format_text import escape_control_characters
from mallorn.core.labels import parse_labels
from mallorn.core.registry import WORDS
from mallorn.core.settings import Settings
from mallorn.core.states import JobState
from mallorn.core.targets import LOCAL, Target, name_targets
from mallorn.wording.format_values import Column, describe_budget, format_latency

# States of jobs that continue, or are done, without a call to resume: if `tune` was killed,
# the job waits only for a stack, and it may have ended while nobody followed it.
STANDING: Final = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING, JobState.FINISHING, JobState.DONE)
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the curve and MetaSchedule's table of tasks.")
]


def tune(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="An ONNX file, or a folder with one; TFLite and Keras files are converted."
        ),
    ],
    target: job_options.TargetsOption = None,
    *,
    effort: job_options.EffortOptions,
    auto: job_options.AutoOption = False,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the schedules; default: MODEL-tuned.")
    ] = None,
    force: job_options.ForceOption = False,
    label: job_options.LabelOption = None,
    inputs: job_options.InputsOption = None,
    options: job_options.JobFlags,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
    place: Place,
) -> None:
    """Tune a model and fetch its schedules. Starts the service here if no coordinator is named."""
    model = find_model_file(model) if model.is_dir() else model
    # Refuse a misspelt target before anything is started.
    labels = parse_labels(label or ())
    effort = job_options.limit_trials(effort, auto, options)
    requested = [resolve_requested_target(text, not place.url) for text in target or [LOCAL]]
    directory = out or out_directory.default_directory(model.stem)
    if not place.url:
        check_option_kwargs(options)
        check_host((place.data or Settings().data_dir).expanduser().absolute())
    with interrupt_on_signals(), as_onnx(model) as file:
        fix_free_dimensions(file, options, asks=not as_json)
        compute_id = partial(out_directory.model_id_of, file, inputs)
        if len(requested) == 1:
            out_directory.check_directory(directory, force, compute_id)
        with out_directory.out_directory(directory), connected_stack(*place) as stack:
            resolve = partial(resolve_target_to_submit, stack, measurer=options.get("measurer", ""))
            named = name_targets(list(map(resolve, requested)), target or [LOCAL])
            folders = {directory / name if len(named) > 1 else directory: named[name] for name in named}
            for folder, resolved in folders.items():
                out_directory.check_directory(folder, force, compute_id, resolved)
            model_id = upload_with_bar(stack.api, str(file), inputs)

            def submit(text: str) -> Job:
                return stack.api.submit(model_id, text, *effort, model.stem, labels=labels, **options)

            endings: list[Ending] = []
            with pause_on_interrupt(endings):
                for folder, job in out_directory.submit_each(folders, submit):
                    own_out = out if folder == directory else folder
                    endings.append(Ending(job, folder, str(model), _resume_options(own_out, place, force)))
                    text = f"{model} on {requested[len(endings) - 1]}"
                    print_note(f"job {job.id}: {describe_budget(job.status)} for {text}")
            wait_and_fetch(endings, verbose, as_json, stack.check_runs)


def resume(
    job: JobArgument,
    trials: Annotated[int, typer.Option(min=0, metavar="+N", help="Add this many trials to the budget.")] = 0,
    auto: Annotated[
        bool, typer.Option("--auto", help="Go on while trials are worth their time, whatever the budget was.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the schedules; default: MODEL-tuned.")
    ] = None,
    force: job_options.ForceOption = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Continue a job where it stopped; nothing is measured again. For a done job, fetch its schedules."""
    with interrupt_on_signals(), connected_stack(*place) as stack:
        handle = stack.api.job(job)
        directory = out or out_directory.default_directory(_stem(handle))
        target = Target(handle.status.target)
        out_directory.check_directory(directory, force, lambda: handle.status.model_id, target)
        resume_options = _resume_options(out, place, force)
        file = Path(f"{_stem(handle)}.onnx")  # a job does not store the path of its model
        name = str(file) if file.is_file() else "MODEL.onnx"
        ending = Ending(handle, directory, name, resume_options)
        if trials or auto or handle.status.state not in STANDING:
            handle.resume(trials, auto=auto)
        print_note(f"job {handle.id} {'is done' if handle.status.state is JobState.DONE else 'goes on'}")
        with out_directory.out_directory(directory):
            wait_and_fetch([ending], verbose, as_json, stack.check_runs)


def _stem(job: Job) -> str:
    return Path(job.status.name or job.id).stem


def _resume_options(out: Path | None, place: Place, force: bool) -> tuple[str, ...]:
    """Return the options for `mallorn resume` to find the same service and directory."""
    options = {"--out": out, "--data": place.data, "--url": place.url}
    words = (str(word) for name, value in options.items() if value is not None for word in (name, value))
    return (*words, "--force") if force else tuple(words)


@dataclass(frozen=True)
class Ending:
    """A job that a command follows, and where its schedules go."""

    job: Job
    directory: Path
    model: str  # as the user would type it
    resume_options: tuple[str, ...] = ()  # further options for `mallorn resume JOB`

    @property
    def has_schedules(self) -> bool:
        return out_directory.holds_schedules_of(self.directory, self.job.id)

    def finish(self, as_json: bool) -> Body:
        """Download the schedules; return the job and print it. Raises JobFailed."""
        self.job.raise_for_state()
        self.job.fetch(self.directory)
        if not as_json:
            print_tuned_job(self.job.status, self.directory, self.model, self.resume_options)
        return {**self.job.body, "directory": str(self.directory)}

    def pause(self) -> None:
        """Pause the job, and print where its results are and how it goes on."""
        message = "stopped; what was measured is kept. Go on with"
        try:
            self.job.pause()
        except Conflict:
            message = "stopped; the job had just ended. See how, and fetch the schedules, with"
        except MallornError as error:
            cause = f"the job could not be paused: {error.message}"
            message = f"stopped following; {cause}. Follow it again with"
        print_note(f"\n{message}   {shlex.join(['mallorn', 'resume', self.job.id, *self.resume_options])}")
        # The export may be new, or only partly fetched.
        FirstExport(self.job, self.directory).announce_first_export(self.job.status)
        if self.has_schedules:
            check = command_that_checks(self.directory, self.model)
            print_note(f"{self.directory} holds a version that works. Check it with   {check}")


#: Columns of the table on several targets.
COLUMNS: Final = (
    Column[Ending]("TARGET", lambda one: one.directory.name),
    Column[Ending]("STATE", lambda one: one.job.state),
    Column[Ending]("DEFAULT BUILD", lambda one: format_latency(one.job.status.median_us("untuned"))),
    Column[Ending]("TUNED", lambda one: format_latency(one.job.status.median_us("tuned"))),
    Column[Ending]("ONNXRUNTIME", lambda one: format_latency(one.job.status.median_us("onnxruntime"))),
    Column[Ending]("VERDICT", lambda one: one.job.verdict.level if one.job.verdict else None),
    Column[Ending]("DIRECTORY", lambda one: str(one.directory) if one.has_schedules else None),
)


def wait_and_fetch(
    endings: Sequence[Ending], verbose: bool, as_json: bool, check_runs: Callable[[], None] = lambda: None
) -> None:
    """Follow jobs to their end in one view, download their schedules and print the results.

    `check_runs` raises Unavailable if the service on this machine ended.
    """
    named = {one.directory.name if len(endings) > 1 else "": one for one in endings}
    with pause_on_interrupt(endings):
        for name, ending in named.items():
            print_note(f"{f'page of {name}' if name else 'its page'}: {ending.job.page}")
        for seam, name in list_user_classes(endings[0].job.status.options):
            print_note(f"the {WORDS[seam]} {name} is not part of Mallorn: the service imports and runs it")
        firsts = {name: FirstExport(ending.job, ending.directory) for name, ending in named.items()}
        show_until_ended(firsts, stderr(), verbose, check_runs)
    if len(endings) > 1:
        return finish_each(
            named, lambda _, ending: ending.finish(as_json), as_json, lambda ending: ending.job.body, COLUMNS
        )
    body = endings[0].finish(as_json)
    return print_json(body) if as_json else None


@contextmanager
def pause_on_interrupt(endings: Sequence[Ending]) -> Iterator[None]:
    """Pause the jobs on Ctrl-C, print how they go on, and exit with code 130."""
    try:
        yield
    except KeyboardInterrupt:
        for ending in endings:
            ending.pause()
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def fix_free_dimensions(file: Path, options: OptionKwargs, asks: bool) -> None:
    """Ask for the sizes of free dimensions, and add the inputs' shapes to the options.

    Raises InvalidModel, with the options to type, unless `asks` and there is a terminal.
    """
    free, sizes = find_free_inputs(file, options), dict[str, int]()
    shapes = dict(options.get("input_shapes") or {})
    if free and not (asks and sys.stdin.isatty() and sys.stderr.isatty()):
        raise free_dimensions_error(free, shapes)
    guesses = guess_sizes(free)
    for name, shape in free.items():
        labels = [f"dimension {axis} of {name}" if size == "?" else size for axis, size in enumerate(shape)]
        for label, guess in zip(labels, guesses[name], strict=True):
            if isinstance(label, str) and label not in sizes:
                question = f"size of {escape_control_characters(label)}"
                sizes[label] = typer.prompt(question, default=guess, type=int, err=True)
        shapes[name] = [label if isinstance(label, int) else sizes[label] for label in labels]
    if free:
        options["input_shapes"] = shapes


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt also on SIGTERM and SIGHUP, unless these are ignored."""
    signals = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN
    ]
    handlers = {number: signal.signal(number, signal.default_int_handler) for number in signals}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
