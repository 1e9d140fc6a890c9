"""`mallorn retune`: tune only workloads without a schedule that applies."""

from glob import escape
from inspect import unwrap
from pathlib import Path
from typing import Annotated

import typer

from mallorn.cli.compile_and_bench import ModelArgument
from mallorn.cli.dataset_import import ImportTally, import_logs
from mallorn.cli.dataset_options import dataset
from mallorn.cli.schedule_directory import (
    ScheduleDirectory,
    local_model,
    read_schedule_directory,
)
from mallorn.cli.terminal.job_options import EffortOptions, JobFlags
from mallorn.cli.terminal.option_groups import expand_option_groups
from mallorn.cli.terminal.output import JsonOption, Place, print_json, print_note
from mallorn.cli.tune_and_resume import tune
from mallorn.core.check_option_kwargs import OptionKwargs
from mallorn.core.job_options import MOST_PATTERNS
from mallorn.core.targets import LOCAL
from mallorn.onnx_export import find_model_file


@expand_option_groups
def retune(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="What `mallorn tune` wrote; it is updated."),
    ],
    model: ModelArgument,
    effort: EffortOptions,
    *,
    options: JobFlags,
    as_json: JsonOption = False,
    place: Place,
) -> None:
    """Tune only workloads that are new or whose schedule no longer applies; update DIR."""
    model, exported = find_model_file(model), read_schedule_directory(directory, None)
    tasks = find_missing(model, exported)
    if not tasks:
        print_note(f"every schedule applies: nothing to tune in {directory}")
        if as_json:
            print_json({"missing": []})
        return
    print_note(f"{len(tasks)} workloads to tune: {', '.join(tasks)}")
    if place.url:
        print_note(f"records of {directory} stay here; {place.url} has its own")
    else:
        import_records(directory, place.data)
    target = exported.target.text if effort.target == LOCAL else effort.target
    unwrap(tune)(
        model,
        effort._replace(target=target),
        directory,
        True,  # the directory may be of an earlier version of the model
        options=options_of(exported, tasks) | options,
        as_json=as_json,
        place=place,
    )


def find_missing(model: Path, exported: ScheduleDirectory) -> list[str]:
    """Return the names of the model's workloads to which no record applies."""
    with local_model(model, exported) as whole_model:
        records = exported.create_database_folder(whole_model.folder)
        return whole_model.compile(records, whole_model.folder / "tuned.so").missing


def options_of(exported: ScheduleDirectory, tasks: list[str]) -> OptionKwargs:
    """Return job options that tune only these workloads, for the shapes of the manifest."""
    manifest, options = exported.manifest, OptionKwargs()
    if len(tasks) <= MOST_PATTERNS:
        options["only"] = [escape(name) for name in tasks]
    if manifest.dynamic is not None:
        options["dynamic"] = {name: list(bounds) for name, bounds in manifest.dynamic.ranges.items()}
    elif manifest.input_shapes:
        options["input_shapes"] = manifest.input_shapes
    return options


def import_records(directory: Path, data: Path | None) -> None:
    """Add the records to the dataset of the service here, which then reuses them."""
    tally = ImportTally()
    with dataset(data, None, create=True) as database:
        import_logs(database, directory, tally)
    tally.print_problems()
    print_note(f"{tally.added} records of {directory} were added to the dataset here")
