"""`mallorn.tune`: tune a model in one call, on a local service if none is configured."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Unpack

from mallorn.client.job import Job, Progress
from mallorn.client.local_service import connected_stack, resolve_requested_target, resolve_target_to_submit
from mallorn.client.logins import current_url
from mallorn.client.onnx_export import as_onnx
from mallorn.client.out_directory import (
    check_directory,
    default_directory,
    model_id_of,
    out_directory,
)
from mallorn.client.progress_lines import FirstExport, LineView, print_line
from mallorn.core.check_option_kwargs import OptionKwargs
from mallorn.core.errors import Conflict, MallornError
from mallorn.core.installation import missing_package
from mallorn.core.settings import settings
from mallorn.core.target_kind import TargetAttrs
from mallorn.core.targets import LOCAL
from mallorn.core.values.job import JobStatus
from mallorn.report.notebook_card import in_notebook

# The extras that a local service needs, each with a module that shows that it is installed.
NEEDED: Final[Mapping[str, str]] = {"server": "sqlalchemy", "worker": "tvm"}
ELSEWHERE: Final = "   (or set MALLORN_URL to a service elsewhere)"


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
    inputs: str | Path | None = None,
    **options: Unpack[OptionKwargs],
) -> Job:
    """Tune a model, save its schedules and library as `mallorn tune` does; return the job.

    The model and the options are those of `Client.submit`. Files are written to `out`
    (default: MODEL-tuned), the compiled model as `model.so`; `force` overwrites other files.
    `progress` is called with each new status; without it, status lines go to stderr, or a
    notebook shows the job. Without MALLORN_URL and `mallorn login` a local service is used, or
    started for this call, with its data in `data` (default: MALLORN_DATA_DIR), where the job stays readable.
    Raises MissingPackage if a local service is needed and not installed, Conflict if `out`
    holds other files, JobFailed, and what `Client.submit` raises.
    """
    url = settings().url or (None if data else current_url())
    with as_onnx(model, example_inputs, dynamic_shapes) as file:
        directory = Path(out) if out else default_directory(file.stem)
        compute_id = partial(model_id_of, file, Path(inputs) if inputs else None)
        with _rewrite_hints_for_python():
            check_directory(directory, force, compute_id)
        if url is None:
            for module in NEEDED.values():
                if find_spec(module) is None:
                    message = f"tuning on this machine needs {module}, which is not installed"
                    raise missing_package(message, ",".join(NEEDED), ELSEWHERE)
        with out_directory(directory), connected_stack(url, None, Path(data) if data else None) as stack:
            if url is None and isinstance(target, str):
                target = resolve_requested_target(target, is_here=True)
            resolved = resolve_target_to_submit(stack, target, options.get("measurer", ""))
            with _rewrite_hints_for_python():
                check_directory(directory, force, compute_id, resolved)
            job = stack.api.submit(
                file, resolved.text, trials, minutes, seed, name or file.stem, inputs=inputs, **options
            )
            _follow(job, directory, progress)
            job.fetch(directory)
            return stack.job_from_files(job)


@contextmanager
def _rewrite_hints_for_python() -> Iterator[None]:
    try:
        yield
    except Conflict as error:
        error.hint = "mallorn.tune(..., out=OTHER_DIR), or force=True to write over it"
        raise


def _follow(job: Job, directory: Path, progress: Progress | None) -> None:
    """Wait until the job ends, and fetch its first export; on Ctrl-C pause the job."""
    first = FirstExport(job, directory)
    show = progress or LineView(print_line).show

    def report(status: JobStatus) -> None:
        if (line := first.announce_first_export(status)) and progress is None:
            print_line(line)
        show(status)

    try:
        if progress is None and in_notebook():
            job.watch().wait()
            return
        if progress is None:
            print_line(f"job {job.id}, its page: {job.page}")
        job.wait(progress=report)
    except KeyboardInterrupt:
        # The measurements are kept; `mallorn resume` continues the job.
        try:
            job.pause()
        except MallornError as error:
            raise KeyboardInterrupt(f"job {job.id} could not be paused: {error.message}") from None
        raise
