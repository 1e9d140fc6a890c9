"""Checks of an output directory: only `force` overwrites schedules of another model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from mallorn.client.coordinator_client import Wanted
from mallorn.client.job import Job
from mallorn.client.model_upload import ModelUpload
from mallorn.core.errors import Conflict, InvalidRequest, MallornError
from mallorn.core.targets import Target, name_targets, parse_target
from mallorn.core.values.manifest import MANIFEST, read_manifest
from mallorn.wording.format_values import file_name

CHOOSE: Final = "--out OTHER_DIR, or --force to write over it"


@dataclass(frozen=True)
class ExistingSchedules:
    """Model id and target of the schedules that a directory already holds."""

    model: str
    target: Target

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Read the manifest; None for no files. Raises Conflict for other files."""
        if not directory.is_dir() or not any(directory.iterdir()):
            return None
        try:
            manifest = read_manifest(directory / MANIFEST)
            return cls(manifest.model, parse_target(manifest.target))
        except (OSError, InvalidRequest):
            raise Conflict(f"{directory} holds other files than Mallorn's schedules", hint=CHOOSE) from None


def holds_schedules_of(directory: Path, job_id: str) -> bool:
    """Return whether the directory holds schedules of this job, early or final ones."""
    try:
        return read_manifest(directory / MANIFEST).job == job_id
    except (OSError, InvalidRequest):
        return False


def default_directory(name: str) -> Path:
    """Return the default output directory for a model of this name: `NAME-tuned`."""
    return Path(file_name(name, "-tuned"))


def check_model(directory: Path, model_id: Callable[[], str], force: bool) -> None:
    """Raise Conflict if the directory holds another model's schedules, or other files."""
    existing = None if force else ExistingSchedules.read(directory)
    if existing is not None and existing.model != model_id():
        raise Conflict(f"{directory} holds the schedules of another model", hint=CHOOSE)


def check_target(directory: Path, target: str, force: bool) -> None:
    """Raise Conflict if the directory is for another target, or holds other files."""
    existing = None if force else ExistingSchedules.read(directory)
    if existing is not None and existing.target != parse_target(target):
        raise Conflict(f"{directory} holds schedules for another target, {existing.target}", hint=CHOOSE)


def submit_each(
    submit: Callable[[Wanted], Job], targets: Sequence[Wanted], directory: Path, force: bool
) -> dict[Path, Job]:
    """Submit a job for each target; return them by directory: this one, or of several a part of it each.

    Cancels all jobs and raises InvalidRequest if two are for one target, Conflict if a directory
    holds other files, and what `submit` raises, with the target.
    """
    jobs: list[Job] = []
    try:
        for target in targets:
            try:
                if targets.count(target) > 1:
                    raise InvalidRequest("it is given twice", hint="name each target once")
                jobs.append(submit(target))
            except MallornError as error:
                error.message = f"target {target}: {error.message}" if len(targets) > 1 else error.message
                raise
        # Only now can this be checked: creating a job resolves the target `local`.
        folders = [directory]
        if len(jobs) > 1:
            names = name_targets([parse_target(job.status.target) for job in jobs])
            folders = [directory / name for name in names]
        for folder, job in zip(folders, jobs, strict=True):
            check_model(folder, partial(getattr, job.status, "model_id"), force)
            check_target(folder, job.status.target, force)
    except BaseException:
        for job in jobs:
            with suppress(MallornError):
                job.cancel()
        raise
    return dict(zip(folders, jobs, strict=True))


def model_id_of(file: Path, inputs: Path | None = None) -> str:
    """Return the id of a model, or of one with inputs for checks: the upload's SHA-256."""
    return ModelUpload.of(file, inputs).compute_id()


@contextmanager
def out_directory(directory: Path) -> Iterator[Path]:
    """Create a directory; remove it on exit if empty. Raises InvalidRequest if refused."""
    new_folders = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot create {directory}: {error.strerror}"
        raise InvalidRequest(message, hint="choose another --out") from None
    try:
        yield directory
    finally:
        for folder in new_folders:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
