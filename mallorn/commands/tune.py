"""The command that does it all: upload a model, tune it, follow, fetch the schedules, print what was won."""

from pathlib import Path
from typing import Annotated, Final

import typer

from mallorn.commands.connect import connected_stack, wait_for_device
from mallorn.commands.finish import Ending, prepare_directory
from mallorn.commands.interrupts import interruptible
from mallorn.commands.options import (
    CostModelOption,
    FamiliesOption,
    JobOption,
    MinutesOption,
    OnlyOption,
    PolicyOption,
    PrecisionOption,
    RecipeOption,
    RoundSizeOption,
    SamplerOption,
    SearchOption,
    SeedOption,
    ShapeOption,
    StoppingOption,
    TargetOption,
    TrialsOption,
    job_options,
)
from mallorn.commands.output import DataOption, JobArgument, JsonOption, KeyOption, UrlOption, print_note
from mallorn.commands.upload import upload_with_bar
from mallorn.core.states import JobState
from mallorn.core.targets import LOCAL
from mallorn.exporting import as_onnx
from mallorn.job import Job
from mallorn.words import budget_words

# A job whose `tune` was killed stands still with its stack, and needs nothing but a stack to go on.
RUNNING: Final = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING, JobState.FINISHING)
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the curve and MetaSchedule's table of tasks.")
]


def tune(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An ONNX file; TFLite and Keras files are converted.")
    ],
    target: TargetOption = LOCAL,
    trials: TrialsOption = None,
    minutes: MinutesOption = None,
    seed: SeedOption = 0,
    out: Annotated[Path | None, typer.Option(help="Where the schedules go; default: MODEL-tuned.")] = None,
    recipe: RecipeOption = None,
    precision: PrecisionOption = None,
    search: SearchOption = None,
    cost_model: CostModelOption = None,
    sampler: SamplerOption = None,
    stopping: StoppingOption = None,
    policy: PolicyOption = None,
    families: FamiliesOption = None,
    round_size: RoundSizeOption = None,
    only: OnlyOption = None,
    option: JobOption = None,
    input_shape: ShapeOption = None,
    data: DataOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Tune a model and fetch its schedules. Starts the service here if no coordinator is named."""
    options = job_options(
        option,
        input_shape,
        recipe=recipe,
        precision=precision,
        search=search,
        cost_model=cost_model,
        sampler=sampler,
        stopping=stopping,
        policy=policy,
        families=families,
        round_size=round_size,
        only=only,
    )
    with interruptible(), as_onnx(model) as file:
        directory = prepare_directory(out or Path(f"{model.stem}-tuned"))
        ending = Ending(directory, str(model), verbose, as_json, _again(out, data, url))
        with connected_stack(url, api_key, data) as stack:
            wait_for_device(stack)
            model_id = upload_with_bar(stack.api, str(file))
            job = stack.api.tune(model_id, target, trials, minutes, seed, model.stem, **options)
            print_note(f"job {job.id}: {budget_words(job.body)} for {model} on {target}")
            ending.reach(job)


def resume(
    job: JobArgument,
    trials: Annotated[int, typer.Option(min=0, metavar="+N", help="Add so many trials to the budget.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Where the schedules go; default: MODEL-tuned.")] = None,
    data: DataOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Go on where a job stopped. Nothing is measured again."""
    with interruptible(), connected_stack(url, api_key, data) as stack:
        handle = stack.api.job(job)
        directory = prepare_directory(out or Path(f"{_stem(handle)}-tuned"))
        ending = Ending(directory, _model_of(handle), verbose, as_json, _again(out, data, url))
        if trials or handle.body["state"] not in RUNNING:
            handle.resume(trials)
        print_note(f"job {handle.id} goes on")
        ending.reach(handle)


def _stem(job: Job) -> str:
    return Path(str(job.body["name"] or job.id)).stem


def _model_of(job: Job) -> str:
    """The file that was tuned if it lies here; a job knows its bytes, and not where they came from."""
    file = Path(f"{_stem(job)}.onnx")
    return str(file) if file.is_file() else "MODEL.onnx"


def _again(out: Path | None, data: Path | None, url: str | None) -> tuple[str, ...]:
    """The options that `resume` needs to find the same job and directory again."""
    known = {"--out": out, "--data": data, "--url": url}
    return tuple(str(word) for name, value in known.items() if value is not None for word in (name, value))
