"""The directory that schedules are written to: over none but the same model's, and gone if empty."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from mallorn.core.errors import Conflict, InvalidRequest
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.manifest import MANIFEST, read_manifest
from mallorn.job import Job
from mallorn.model_upload import ModelUpload
from mallorn.wording.format_values import file_name

CHOOSE: Final = "--out OTHER_DIR, or --force to write over it"


@dataclass(frozen=True)
class ExistingSchedules:
    """Whose schedules a directory holds."""

    model: str
    target: Target

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """None for a directory that is not there or empty. Raises Conflict where other files lie."""
        if not directory.is_dir() or not any(directory.iterdir()):
            return None
        try:
            found = read_manifest(directory / MANIFEST)
            return cls(found.model, parse_target(found.target))
        except (OSError, InvalidRequest):
            raise Conflict(f"{directory} holds files that are no schedules of Mallorn", hint=CHOOSE) from None


def holds_schedules_of(directory: Path, job_id: str) -> bool:
    """Whether a version of this job's schedules lies in the directory."""
    try:
        return read_manifest(directory / MANIFEST).job == job_id
    except (OSError, InvalidRequest):
        return False


def default_directory(name: str) -> Path:
    """Where the schedules of a model of this name go."""
    return Path(file_name(name, "-tuned"))


def check_model(directory: Path, model_id: Callable[[], str], force: bool) -> None:
    """Raise Conflict unless the directory has room for this model's schedules."""
    held = None if force else ExistingSchedules.read(directory)
    if held is not None and held.model != model_id():
        raise Conflict(f"{directory} holds the schedules of another model", hint=CHOOSE)


def check_target(directory: Path, target: str, force: bool) -> None:
    """Raise Conflict if the directory holds schedules for another target."""
    held = None if force else ExistingSchedules.read(directory)
    if held is not None and held.target != parse_target(target):
        raise Conflict(f"{directory} holds schedules for another target, {held.target}", hint=CHOOSE)


def check_job(directory: Path, job: Job, force: bool) -> None:
    """Cancel a job whose schedules the directory has no room for: what `local` is, is known once it is made.

    Raises Conflict.
    """
    try:
        check_target(directory, job.status.target, force)
    except Conflict:
        job.cancel()
        raise


def model_id_of(file: Path) -> str:
    """The id that a model has once it is uploaded."""
    digest = hashlib.sha256()
    for chunk in ModelUpload.of(file).chunks():
        digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def out_directory(directory: Path) -> Iterator[Path]:
    """Make the directory now, which is better than to fail after an hour. What stays empty is removed again.

    Raises InvalidRequest.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(
            f"cannot create {directory}: {error.strerror}", hint="choose another --out"
        ) from None
    try:
        yield directory
    finally:
        for made in missing:
            if made.is_dir() and not any(made.iterdir()):
                made.rmdir()
