"""`mallorn.tune`: from a model to its schedules in one call, without a service of one's own."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Unpack

from mallorn.check_output_directory import (
    check_job,
    check_model,
    default_directory,
    model_id_of,
    out_directory,
)
from mallorn.client import Client
from mallorn.core.check_option_kwargs import OptionKwargs
from mallorn.core.errors import Conflict, MallornError
from mallorn.core.install_command import MissingPackage, install_line
from mallorn.core.settings import settings
from mallorn.core.targets import CUDA, LOCAL, TargetAttrs
from mallorn.core.values.job import JobStatus
from mallorn.first_version import FirstVersion
from mallorn.job import Job, Progress
from mallorn.onnx_export import as_onnx
from mallorn.report.notebook_card import in_notebook

Target = str | TargetAttrs
# One module of each extra that a service on this machine is made of.
NEEDED: Final[Mapping[str, str]] = {"server": "sqlalchemy", "worker": "tvm"}


def tune(
    model: Any,
    target: str | TargetAttrs = LOCAL,
    trials: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    *,
    out: str | Path | None = None,
    force: bool = False,
    data: str | Path | None = None,
    name: str | None = None,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    progress: Progress | None = None,
    **options: Unpack[OptionKwargs],
) -> Job:
    """Tune a model and save its schedules, as the command `mallorn tune` does; the finished job.

    Takes what `Client.tune` takes. The schedules go to `out` (default: MODEL-tuned), over other files only
    with `force`. `progress` is called with how the job stands; without it a line goes to stderr now and then,
    or the job shows itself in a notebook. Without MALLORN_URL the service on this machine is used, or started
    for the time being, with its data in `data` (MALLORN_DATA_DIR), where the job stays readable.
    Raises MissingPackage where that cannot be, Conflict, JobFailed, and all that the client raises.
    """
    with as_onnx(model, example_inputs, dynamic_shapes) as file:
        directory = Path(out) if out else default_directory(file.stem)
        with _in_words_of_python():
            check_model(directory, lambda: model_id_of(file), force)
        with out_directory(directory), _service(Path(data) if data else None) as service:
            api, readable_later, named_target = service
            job = api.tune(file, named_target(target), trials, minutes, seed, name or file.stem, **options)
            with _in_words_of_python():
                check_job(directory, job, force)
            _follow(job, directory, progress)
            job.schedules(directory)
            return readable_later(job)


@contextmanager
def _service(
    data: Path | None,
) -> Iterator[tuple[Client, Callable[[Job], Job], Callable[[Target], Target]]]:
    """Yield a client of the service, what makes a handle that outlives it, and what names the target."""
    url, key = settings().url, settings().api_key
    if url is not None:
        yield Client(url), lambda job: job, lambda target: target
        return
    for module in NEEDED.values():
        if find_spec(module) is None:
            raise MissingPackage(
                f"tuning on this machine needs {module}, which is not installed",
                hint=f"{install_line(','.join(NEEDED))}   (or set MALLORN_URL to a service elsewhere)",
            )
    # Loaded by name and when it is needed: clients and services import this package, and know no commands.
    connect = import_module("cli.service.connect_or_start_stack")
    with connect.connected_stack(None, key.get_secret_value() if key else None, data) as stack:

        def named_target(target: Target) -> Target:
            if target == CUDA:
                target = connect.asked_target(CUDA, is_here=True)
            elif target == LOCAL:
                target = connect.submitted_target(stack, target)
            return target

        yield stack.api, stack.kept, named_target


@contextmanager
def _in_words_of_python() -> Iterator[None]:
    try:
        yield
    except Conflict as error:
        error.hint = "mallorn.tune(..., out=OTHER_DIR), or force=True to write over it"
        raise


def _follow(job: Job, directory: Path, progress: Progress | None) -> None:
    try:
        if progress is None and in_notebook():
            job.watch().wait()
        else:
            job.wait(progress=_fetching(job, directory, progress))
    except KeyboardInterrupt:
        # What was measured is kept, and `mallorn resume` goes on with it.
        try:
            job.pause()
        except MallornError as error:
            raise KeyboardInterrupt(f"job {job.id} could not be paused: {error.message}") from None
        raise


def _fetching(job: Job, directory: Path, progress: Progress | None) -> Progress:
    """Fetches the first version besides, and says so where nobody else tells what happens."""
    first, show = FirstVersion(job, directory), progress
    if show is None:  # lines where the command line would print some: where there is news, and now and then
        _say(f"job {job.id}, its page: {job.page}")
        show = import_module("cli.watch.status_text").LineView(_say).show

    def both(status: JobStatus) -> None:
        if (line := first.news(status)) and progress is None:
            _say(line)
        show(status)

    return both


def _say(line: str) -> None:
    """Who has closed stderr hears nothing, and the job goes on."""
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
