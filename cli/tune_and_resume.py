"""The command that does it all: upload a model, tune it, follow, fetch the schedules, print what was won."""

from pathlib import Path
from typing import Annotated, Final

import typer

from cli.host_checks import check_host
from cli.service.connect_or_start_stack import asked_target, connected_stack, wait_for_device
from cli.terminal.interrupts import interruptible
from cli.terminal.job_options import Choices, EffortOptions, ForceOption
from cli.terminal.option_groups import shared
from cli.terminal.output import JobArgument, JsonOption, Place, print_note
from cli.terminal.progress_bars import upload_with_bar
from cli.watch.follow_and_fetch_schedules import Ending
from mallorn.check_output_directory import (
    check_job,
    check_model,
    check_target,
    default_directory,
    model_id_of,
    out_directory,
)
from mallorn.core.check_option_kwargs import check_asked
from mallorn.core.settings import Settings
from mallorn.core.stand_in_measurers import STAND_INS
from mallorn.core.states import JobState
from mallorn.core.targets import LOCAL
from mallorn.job import Job
from mallorn.onnx_export import as_onnx, existing
from mallorn.wording.format_values import budget_words

# A job whose `tune` was killed stands still with its stack, and needs nothing but a stack to go on; one that
# was left while it finished may have ended without a reader.
STANDING: Final = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING, JobState.FINISHING, JobState.DONE)
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the curve and MetaSchedule's table of tasks.")
]


@shared
def tune(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="An ONNX file, or a folder with one; TFLite and Keras files are converted."
        ),
    ],
    effort: EffortOptions,
    out: Annotated[Path | None, typer.Option(help="Where the schedules go; default: MODEL-tuned.")] = None,
    force: ForceOption = False,
    *,
    choices: Choices,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
    place: Place,
) -> None:
    """Tune a model and fetch its schedules. Starts the service here if no coordinator is named."""
    options = choices.asked()
    model = existing(model) if model.is_dir() else model
    # A misspelt one is refused before anything is started.
    effort = effort._replace(target=asked_target(effort.target, not place.url))
    directory = out or default_directory(model.stem)
    if not place.url:
        check_asked(options)
        check_host((place.data or Settings().data_dir).expanduser().absolute())
    with interruptible(), as_onnx(model) as file:
        check_model(directory, lambda: model_id_of(file), force)
        with out_directory(directory), connected_stack(*place) as stack:
            again = _again(out, place, force)
            ending = Ending(directory, str(model), verbose, as_json, again)
            if effort.target == LOCAL or options.get("measurer") not in STAND_INS:
                wait_for_device(stack)  # which says what `local` is, too
            model_id = upload_with_bar(stack.api, str(file))
            job = stack.api.tune(model_id, *effort, model.stem, **options)
            with ending.pausing(job):
                check_job(directory, job, force)
                print_note(f"job {job.id}: {budget_words(job.status)} for {model} on {effort.target}")
            ending.reach(job)


@shared
def resume(
    job: JobArgument,
    trials: Annotated[int, typer.Option(min=0, metavar="+N", help="Add so many trials to the budget.")] = 0,
    auto: Annotated[
        bool, typer.Option("--auto", help="Whatever the budget was: while trials are worth their seconds.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Where the schedules go; default: MODEL-tuned.")] = None,
    force: ForceOption = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Go on where a job stopped. Nothing is measured again. Of a done job the schedules are fetched."""
    with interruptible(), connected_stack(*place) as stack:
        handle = stack.api.job(job)
        directory = out or default_directory(_stem(handle))
        check_model(directory, lambda: handle.status.model_id, force)
        check_target(directory, handle.status.target, force)
        again = _again(out, place, force)
        file = Path(f"{_stem(handle)}.onnx")  # a job knows its model's bytes, and not where they came from
        ending = Ending(directory, str(file) if file.is_file() else "MODEL.onnx", verbose, as_json, again)
        if trials or auto or handle.status.state not in STANDING:
            handle.resume(trials, auto=auto)
        print_note(f"job {handle.id} {'is done' if handle.status.state is JobState.DONE else 'goes on'}")
        with out_directory(directory):
            ending.reach(handle)


def _stem(job: Job) -> str:
    return Path(job.status.name or job.id).stem


def _again(out: Path | None, place: Place, force: bool) -> tuple[str, ...]:
    """The options that `resume` needs to find the same job and directory again."""
    known = {"--out": out, "--data": place.data, "--url": place.url}
    words = (str(word) for name, value in known.items() if value is not None for word in (name, value))
    return (*words, "--force") if force else tuple(words)
