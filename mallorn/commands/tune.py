"""The command that does it all: upload a model, tune it, follow, fetch the schedules, print what was won."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mallorn.commands.connect import connected_stack, wait_for_device
from mallorn.commands.finish import Ending, prepare_directory
from mallorn.commands.interrupts import interruptible
from mallorn.commands.options import parse_options
from mallorn.commands.output import JobArgument, JsonOption, KeyOption, UrlOption, print_note
from mallorn.commands.upload import upload_with_bar
from mallorn.core.errors import InvalidModel
from mallorn.core.targets import LOCAL

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Where the service on this machine keeps its data.  [MALLORN_DATA_DIR]"),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show MetaSchedule's table of tasks.")]


def tune(
    model: Annotated[Path, typer.Argument(help="An ONNX file.")],
    target: Annotated[
        str, typer.Option(help="`local`, a JSON target, or a tag like nvidia/nvidia-h100.")
    ] = LOCAL,
    trials: Annotated[int, typer.Option(min=1, help="Candidates to try.")] = 200,
    minutes: Annotated[float | None, typer.Option(min=0, help="Stop after so many minutes.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every choice.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Where the schedules go; default: MODEL-tuned.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Graph passes: `tuned`, or `plain` for stock compile_relax.")
    ] = None,
    search: Annotated[str | None, typer.Option(help="Searcher by name.")] = None,
    cost_model: Annotated[str | None, typer.Option(help="Cost model by name.")] = None,
    policy: Annotated[str | None, typer.Option(help="What decides which task is next.")] = None,
    round_size: Annotated[int | None, typer.Option(min=1, max=64, help="Candidates a round.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="Any other job option; repeatable."),
    ] = None,
    input_shape: Annotated[
        list[str] | None, typer.Option(metavar="NAME:1,3,224,224", help="Binds free dimensions; repeatable.")
    ] = None,
    data: DataOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Tune a model and fetch its schedules. Starts the service here if no coordinator is named."""
    named = {
        "recipe": recipe,
        "search": search,
        "cost_model": cost_model,
        "policy": policy,
        "round_size": round_size,
    }
    options: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    options |= parse_options(option or [], input_shape or [])
    _check_model(model)
    ending = Ending(prepare_directory(out or Path(f"{model.stem}-tuned")), str(model), verbose, as_json)
    with interruptible(), connected_stack(url, api_key, data) as stack:
        wait_for_device(stack)
        model_id = upload_with_bar(stack.api, str(model))
        job = stack.api.tune(model_id, target, trials, minutes, seed, model.stem, **options)
        print_note(f"job {job.id}: {trials} trials for {model} on {target}")
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
        name = str(handle.body["name"])
        ending = Ending(prepare_directory(out or Path(f"{name}-tuned")), f"{name}.onnx", verbose, as_json)
        handle.resume(trials)
        print_note(f"job {handle.id} goes on")
        ending.reach(handle)


def _check_model(model: Path) -> None:
    if not model.is_file():
        raise InvalidModel(f"there is no file {str(model)!r}", hint="give the path of an .onnx file")
