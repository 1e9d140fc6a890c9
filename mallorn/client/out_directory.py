"""Checks of an output directory: only `force` overwrites schedules of another model."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from mallorn.client.job import Job
from mallorn.client.model_upload import ModelUpload
from mallorn.core.errors import Conflict, InvalidRequest, MallornError
from mallorn.core.targets import Target, parse_target
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


def check_directory(
    directory: Path, force: bool, model_id: Callable[[], str], target: Target | None = None
) -> None:
    """Raise Conflict if it holds schedules of another model or target, or other files."""
    existing = None if force else ExistingSchedules.read(directory)
    if existing is not None and existing.model != model_id():
        raise Conflict(f"{directory} holds the schedules of another model", hint=CHOOSE)
    if existing is not None and target not in (None, existing.target):
        raise Conflict(f"{directory} holds schedules for another target, {existing.target}", hint=CHOOSE)


def submit_each(folders: Mapping[Path, Target], submit: Callable[[str], Job]) -> Iterator[tuple[Path, Job]]:
    """Yield a submitted job for each directory. If one is refused, cancel the others."""
    jobs: list[Job] = []
    for folder, target in folders.items():
        try:
            jobs.append(submit(target.text))
        except MallornError as error:
            messages = [f"{folder.name}: " * (len(folders) > 1) + error.message]
            for job in jobs:
                try:
                    messages.append(f"job {job.id} is {job.cancel().state}")
                except MallornError as second:
                    messages.append(f"job {job.id} is not cancelled: {second.message}")
            error.message = "; ".join(messages)
            raise
        yield folder, jobs[-1]


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
