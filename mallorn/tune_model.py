"""`mallorn.tune`: tune a model in one call, with a local service if none is configured."""

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
# The extras that a local service needs, each with a module that shows that it is installed.
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
    """Tune a model, save its schedules as `mallorn tune` does, and return the finished job.

    The model and the options are those of `Client.tune`. Schedules are written to `out`
    (default: MODEL-tuned); `force` overwrites other files. `progress` is called with each new
    status; without it, status lines go to stderr, or a notebook shows the job. Without
    MALLORN_URL a local service is used, or started for this call, with its data in `data`
    (default: MALLORN_DATA_DIR), where the job stays readable. Raises MissingPackage if a local
    service is needed and not installed, Conflict if `out` holds other files, JobFailed, and
    what `Client.tune` raises.
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
    """Yield a client, a function that keeps a job readable, and one that resolves a target."""
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
    # Imported by name on demand: this package must not depend on the command line.
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
        # The measurements are kept; `mallorn resume` continues the job.
        try:
            job.pause()
        except MallornError as error:
            raise KeyboardInterrupt(f"job {job.id} could not be paused: {error.message}") from None
        raise


def _fetching(job: Job, directory: Path, progress: Progress | None) -> Progress:
    """Return `progress`, or else a printer of lines, extended to fetch the first version."""
    first, show = FirstVersion(job, directory), progress
    if show is None:  # print the same lines as the command line
        _say(f"job {job.id}, its page: {job.page}")
        show = import_module("cli.watch.status_text").LineView(_say).show

    def report(status: JobStatus) -> None:
        if (line := first.news(status)) and progress is None:
            _say(line)
        show(status)

    return report


def _say(line: str) -> None:
    """Print a line to stderr; do nothing if stderr is closed."""
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
