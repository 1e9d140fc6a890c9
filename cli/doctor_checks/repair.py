"""Repairs of `mallorn doctor --repair`, which run before its checks."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

from mallorn.cli.doctor_checks import stored_data as stored
from mallorn.cli.doctor_checks.findings import Finding
from mallorn.core.artifact_uris import job_exports_uri, model_uri, open_store
from mallorn.core.errors import MallornError, NotFound, StorageFull
from mallorn.core.host_id import host_folder
from mallorn.core.private_files import make_private_directory
from mallorn.core.settings import Settings
from mallorn.db import backups
from mallorn.db.migrate import check_table_version, upgrade
from mallorn.db.repositories.stored_files import Repairs, StoredFiles
from mallorn.db.repositories.withdraw_measurements import BusyHours
from mallorn.db.session import Database
from mallorn.stack.data_directory import DataDir
from mallorn.stack.temporary_files import find_abandoned_folders, remove_abandoned_folders


@dataclass(frozen=True, slots=True)
class FileQuarantine:
    """Folder to which a repair moves damaged files; created when the first one comes."""

    folder: Path

    def move_file(self, uri: str) -> Path:
        """Move a file of the artifact store to the folder. Raises StorageFull."""
        fs, path = open_store(uri)
        place = self._quarantine_path(Path(path).name)
        try:
            if isinstance(fs, LocalFileSystem):
                shutil.move(path, place)
            else:
                fs.get_file(path, str(place))
                fs.rm_file(path)
        except OSError as error:
            raise _cannot(uri, error) from error
        return place

    def link(self, file: Path) -> Path:
        """Hard-link a file into the folder, so that another can replace the original."""
        place = self._quarantine_path(file.name)
        try:
            os.link(file, place)
        except OSError as error:
            raise _cannot(str(file), error) from error
        return place

    def _quarantine_path(self, name: str) -> Path:
        try:
            make_private_directory(self.folder)
        except OSError as error:
            raise _cannot(str(self.folder), error) from error
        return self.folder / name


def _cannot(path: str, error: OSError) -> StorageFull:
    return StorageFull(f"cannot move {path} aside: {error.strerror or error}", hint="df -h; ls -ld DATA_DIR")


def repair_all(config: Settings) -> Iterator[Finding]:
    """Make all repairs and yield a finding for each; stop after the first that fails."""
    damaged = config.data_dir.absolute() / "damaged"
    aside = FileQuarantine(damaged / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    try:
        for words in _iterate_repairs(config, aside):
            yield Finding("repaired", True, words)
    except MallornError as error:
        yield Finding("repair", False, error.message, error.hint)


def _iterate_repairs(config: Settings, aside: FileQuarantine) -> Iterator[str]:
    yield from remove_leftovers(config.data_dir)
    yield from restore_database(config.database_url, aside)
    with Database(config.database_url) as database:
        check_table_version(database)
        yield from repair_models(database, config.artifacts, aside)
        yield from repair_exports(database)
        yield from repair_times(database)
        yield from repair_cost_models(database)


def remove_leftovers(data: Path) -> Iterator[str]:
    """Remove temporary folders that killed processes of the service left here."""
    places = DataDir(data).temporary_directory, host_folder()
    if folders := [str(folder) for folder in find_abandoned_folders(*places)]:
        remove_abandoned_folders(*places)
        yield f"removed files that killed processes left: {', '.join(sorted(folders))}"


def restore_database(url: str, aside: FileQuarantine) -> Iterator[str]:
    """Replace a damaged or missing SQLite file by the newest intact backup.

    Without a backup it raises DamagedDatabase, or NotFound if the file is missing. Raises
    Conflict while a process uses the file.
    """
    file = backups.sqlite_file(url)
    if file is None:
        return
    try:
        backups.check_pages(file)
        return
    except (backups.DamagedDatabase, NotFound) as error:
        backup = backups.newest_undamaged(file)
        if backup is None and isinstance(error, NotFound):
            raise
        if backup is None:
            raise backups.DamagedDatabase(
                f"{error.message}; {backups.folder_of(file)} has no intact backup",
                hint=f"sqlite3 {file} .recover | sqlite3 NEW.db   saves what can be read "
                "(docs/runbook.md, Damage)",
            ) from None
    # Replaced at once: a service that started without the file would create an empty one.
    draft = file.with_name(f"{file.name}.restored")
    try:
        shutil.copyfile(backup, draft)
        if file.exists():
            backups.check_unused(file)
            for log in (file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm")):
                if log.exists():
                    aside.move_file(str(log))
            aside.link(file)
        draft.replace(file)
    except OSError as error:
        raise StorageFull(f"cannot write {draft}: {error.strerror}", hint="free some room: df -h") from error
    finally:
        draft.unlink(missing_ok=True)
    upgrade(url)
    moved = f"; the torn one is in {aside.folder}" if aside.folder.exists() else ""
    moment = f"{backups.taken_at(backup):%Y-%m-%d %H:%M:%S} UTC"
    yield f"{file} is the backup of {moment}; what came later is lost{moved}"


def repair_models(database: Database, artifacts: str, aside: FileQuarantine) -> Iterator[str]:
    """Move damaged models away; record damaged and missing models in their jobs."""
    for model_id, flaw in stored.flawed_models(database, artifacts):
        uri = model_uri(artifacts, model_id)
        _check_folder_exists(uri.rpartition("/")[0])
        moved = f", moved to {aside.move_file(uri)}" if flaw.there else ""
        with database.transaction() as session:
            jobs = Repairs(session).record_lost_model(model_id)
        yield f"{uri} {flaw.words}{moved}; " + (f"told jobs {', '.join(jobs)}" if jobs else "no job uses it")


def repair_exports(database: Database) -> Iterator[str]:
    """Record in the jobs which of their exports are missing."""
    for job_id, uri in stored.missing_exports(database).items():
        _check_folder_exists(job_exports_uri(job_exports_uri(uri)))
        with database.transaction() as session:
            Repairs(session).record_lost_export(job_id)
        yield f"{uri} is missing; told job {job_id}"


def repair_times(database: Database) -> Iterator[str]:
    """Mark times as upper bounds in hours whose trials mostly took too long."""
    with database.transaction() as session:
        busy_hours = BusyHours(session)
        for hour in busy_hours.busy_hours():
            count = busy_hours.mark_as_bounds(hour)
            long = f"{hour.times:.1f} times too long"
            yield f"{count} times of job {hour.job_id} are upper bounds from now on: they were {long}"


def repair_cost_models(database: Database) -> Iterator[str]:
    """Retire damaged cost models, and activate the newest intact version before each."""
    with database.session() as session:
        rows = StoredFiles(session).cost_models()
        damaged = [(row.id, row.name) for row in rows if stored.damaged(row)]
    for version_id, name in damaged:
        with database.transaction() as session:
            older_rows = StoredFiles(session).cost_models_before(version_id)
            intact = next((row for row in older_rows if not stored.damaged(row)), None)
            Repairs(session).replace_active_version(version_id, None if intact is None else intact.id)
        result = "no earlier version is intact" if intact is None else f"{intact.name} is active again"
        yield f"{name} is damaged and retired: {result}"


def _check_folder_exists(folder: str) -> None:
    """Raise NotFound if a folder is missing: its disk is then unmounted, no file is lost."""
    fs, path = open_store(folder)
    if not fs.exists(path):
        message = f"the database names files in {folder}, which does not exist"
        raise NotFound(message, hint="mount it, or set MALLORN_ARTIFACTS")
