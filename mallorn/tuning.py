"""`mallorn.tune`: from a model to its schedules in one call, without a service of one's own."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Unpack

from mallorn.core.asked import Asked
from mallorn.core.errors import MallornError
from mallorn.core.extras import MissingPackage
from mallorn.core.installing import install_line
from mallorn.core.settings import settings
from mallorn.core.targets import LOCAL, TargetAttrs
from mallorn.exporting import as_onnx
from mallorn.job import Job
from mallorn.widget import in_notebook

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
    data: str | Path | None = None,
    name: str | None = None,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    **options: Unpack[Asked],
) -> Job:
    """Tune a model and save its schedules, as the command `mallorn tune` does; the finished job.

    Takes what `Client.tune` takes. The schedules go to `out` (default: MODEL-tuned). Without MALLORN_URL the
    service on this machine is used, or started for the time being, with its data in `data`
    (MALLORN_DATA_DIR). Raises MissingPackage where that cannot be, JobFailed, and all that the client raises.
    """
    with as_onnx(model, example_inputs, dynamic_shapes) as file:
        directory = Path(out or f"{file.stem}-tuned")
        return _tune(
            file,
            directory,
            Path(data) if data else None,
            target=target,
            trials=trials,
            minutes=minutes,
            seed=seed,
            name=name or file.stem,
            **options,
        )


def _tune(file: Path, directory: Path, data: Path | None, **wanted: Any) -> Job:
    url, key = settings().url, settings().api_key
    if url is None:
        _check_installed()
    # Loaded by name and when it is needed: clients and services import this package, and know no commands.
    connect = import_module("cli.service.connect")
    with connect.connected_stack(url, key.get_secret_value() if key else None, data) as stack:
        connect.wait_for_device(stack)
        job: Job = stack.api.tune(file, **wanted)
        _follow(job)
        job.schedules(directory)
    return job


def _check_installed() -> None:
    for module in NEEDED.values():
        if find_spec(module) is None:
            raise MissingPackage(
                f"tuning on this machine needs {module}, which is not installed",
                hint=f"{install_line(','.join(NEEDED))}   (or set MALLORN_URL to a service elsewhere)",
            )


def _follow(job: Job) -> None:
    try:
        if in_notebook():
            job.watch()
        job.wait()
    except KeyboardInterrupt:
        _pause(job)
        raise


def _pause(job: Job) -> None:
    """What was measured is kept, and `mallorn resume` goes on with it."""
    try:
        job.pause()
    except MallornError as error:
        raise KeyboardInterrupt(f"job {job.id} could not be paused: {error.message}") from None
