"""Checks of a data directory: database, stored files, leftovers and sandbox."""

import hashlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import select

from mallorn.core.artifact_uris import model_uri, open_store
from mallorn.core.errors import Conflict, InvalidRequest, MallornError, NotFound, StorageFull, Unavailable
from mallorn.core.host_id import host_folder
from mallorn.core.private_files import is_open_to_others
from mallorn.costmodels.serialization import check_bytes
from mallorn.db.backups import back_up, check_pages, folder_of, list_backups, sqlite_file, taken_at
from mallorn.db.migrate import check_table_version
from mallorn.db.repositories.invariants import QUERIES, Invariants
from mallorn.db.repositories.stored_files import Repairs, StoredCostModel, StoredFiles
from mallorn.db.repositories.withdraw_measurements import BusyHours
from mallorn.db.session import Database
from mallorn.stack.data_directory import DataDir
from mallorn.stack.temporary_files import find_abandoned_folders
from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support

NEXT_START = "nothing to do: the next   mallorn up   removes it"
NAMED: Final = 5  # missing or damaged files that are named in one line
LATELY_DAYS: Final = 30  # so the check takes no longer as the dataset grows


def check_integrity(database: Database) -> str:
    """Check the database. Raises NotFound, DamagedDatabase or Unavailable if it fails."""
    file = sqlite_file(database.url)
    if file is None:
        with database.session() as session:
            session.execute(select(1))
        return "the server answers"
    check_pages(file)
    return f"{file} is intact, {file.stat().st_size / 1e6:.1f} MB"


def check_tables(database: Database) -> str:
    """Raise Conflict if the database's tables are not of this version."""
    check_table_version(database)
    return "of this version"


def describe_backups(database: Database) -> str:
    """Return a text on the backups of a SQLite file; for a server, where to read on."""
    file = sqlite_file(database.url)
    if file is None:
        return "by pg_dump: docs/runbook.md, Backup"
    files = list_backups(file)
    if not files:
        return f"none in {folder_of(file)}; a running service makes one a day"
    names = ", ".join(f"{taken_at(backup):%Y-%m-%d %H:%M}" for backup in files)
    return f"{len(files)} in {folder_of(file)}, of {names} UTC"


def copy_sqlite_database(database: Database, copy: Path) -> str:
    """Copy a SQLite database to `copy`. Raises InvalidRequest for a database server,
    Conflict if `copy` exists, StorageFull if the copy cannot be written."""
    file = sqlite_file(database.url)
    if file is None:
        raise InvalidRequest("--backup copies SQLite files only", hint="pg_dump: docs/runbook.md, Backup")
    if copy.exists():
        raise Conflict(f"{copy} exists", hint="name another: --backup FILE")
    try:
        back_up(file, copy)
    except (OSError, sqlite3.Error) as error:
        message = f"cannot write {copy}: {error}"
        raise StorageFull(message, hint="name another file with --backup FILE") from None
    return f"{copy} is a complete copy of {file}"


def check_access_rights(data: Path) -> str:
    """Check a data folder. Raises NotFound if missing, InvalidRequest if not writable."""
    if not data.is_dir():
        message = f"there is no directory {data} yet"
        raise NotFound(message, hint="mallorn up, or name another with --data DIR")
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        raise InvalidRequest(
            f"user {os.getuid()} has no permission to write to {data}",
            hint=f"chown -R {os.getuid()} {data}, or mount its disk for writing",
        )
    return f"{data} can be written"


def check_privacy(data: Path) -> str:
    """Raise InvalidRequest if all users of the host can enter a data folder."""
    if data.is_dir() and is_open_to_others(data):
        message = f"all users of this host can enter {data}, and read models and digests of keys"
        raise InvalidRequest(message, hint=f"mallorn doctor --repair, or   chmod 700 {data}")
    return "other users of this host cannot read the data"


def describe_running_service(directory: DataDir) -> str:
    """Describe the service that runs here. Raises Unavailable if a dead one left a file."""
    running = directory.read_running_stack()
    if running is not None:
        return f"{running.url}, process {running.pid}"
    if directory.stack_file.exists():
        raise Unavailable(f"{directory.stack_file} belongs to a service that was killed", hint=NEXT_START)
    return "none runs"


def check_leftovers(directory: DataDir) -> str:
    """Raise Unavailable, with their paths, if killed processes left temporary folders."""
    places = directory.temporary_directory, host_folder()
    folders = [str(folder) for folder in find_abandoned_folders(*places)]
    if folders:
        raise Unavailable(f"killed parts left {', '.join(sorted(folders))}", hint=NEXT_START)
    return f"killed processes left no files in {' and '.join(map(str, places))}"


def describe_sandbox(mode: str) -> str:
    """Describe this host's sandbox. Raises NoSandbox if it is less than `mode` requires."""
    return f"{probe_sandbox_support(mode)}, with MALLORN_SANDBOX={mode}"


class Lacking(MallornError):
    """A file that the database names is missing or damaged."""


class Flaw(NamedTuple):
    """A damaged or missing file: what is wrong with it, and whether it exists."""

    words: str
    there: bool


def check_models(database: Database, artifacts: str) -> str:
    """Check the models' files. Raises Lacking for flaws that no job has on record."""
    flawed = flawed_models(database, artifacts)
    bad = [f"{model_uri(artifacts, model_id)} {flaw.words}" for model_id, flaw in flawed]
    if bad:
        raise Lacking(
            _first_few(bad),
            hint="submit the same model files again, which restores them; or   mallorn doctor --repair",
        )
    with database.session() as session:
        model_ids = StoredFiles(session).models()
        lost_ids = Repairs(session).lost_models().intersection(model_ids)
    missing_count = sum(not _files(model_uri(artifacts, model_id)) for model_id in lost_ids)
    note = f"; {missing_count} are missing, as their jobs warn" if missing_count else ""
    return f"{len(model_ids) - missing_count} models are intact{note}"


def flawed_models(database: Database, artifacts: str) -> Sequence[tuple[str, Flaw]]:
    """Return damaged models, and those missing ones whose jobs do not record the loss."""
    with database.session() as session:
        model_ids, lost_ids = StoredFiles(session).models(), Repairs(session).lost_models()
    flaws = [(model_id, _flaw(model_uri(artifacts, model_id), model_id)) for model_id in model_ids]
    return [
        (model_id, flaw)
        for model_id, flaw in flaws
        if flaw is not None and (flaw.there or model_id not in lost_ids)
    ]


def check_exports(database: Database) -> str:
    """Check the files that jobs exported. Raises Lacking, naming what is missing."""
    if bad := [f"{uri} of job {job} is missing" for job, uri in missing_exports(database).items()]:
        raise Lacking(_first_few(bad), hint="restore `artifacts` from a backup; or mallorn doctor --repair")
    with database.session() as session:
        return f"{len(StoredFiles(session).exports())} jobs have their exports"


def missing_exports(database: Database) -> dict[str, str]:
    """Return the URIs of missing exports, by job id."""
    with database.session() as session:
        uris = StoredFiles(session).exports()
    return {job: uri for job, uri in uris.items() if not _files(uri)}


def check_times(database: Database) -> str:
    """Check measured times. Raises Lacking for hours in which most trials took too long."""
    with database.session() as session:
        hours = BusyHours(session).busy_hours()
    bad = [f"{hour.rows} of job {hour.job_id}, {hour.times:.1f} times too long" for hour in hours]
    if bad:
        raise Lacking(
            f"some times were taken on a host in use: {_first_few(bad)}",
            hint="mallorn doctor --repair   (marks them as upper bounds, so that they may be measured again)",
        )
    return "no candidate's times disagree beyond noise"


def check_invariants(database: Database) -> str:
    """Check what must hold for rows of jobs that run or ended lately. Raises Lacking, naming
    rows, if it does not."""
    with database.session() as session:
        broken = Invariants(session).find_broken(LATELY_DAYS * 86_400)
    if broken:
        texts = [f"{text}, but not for {', '.join(rows)}" for text, rows in broken.items()]
        raise Lacking(
            "; ".join(texts), hint="keep a backup, and report it: a fault of Mallorn or of the disk"
        )
    return f"all {len(QUERIES)} hold for the jobs of {LATELY_DAYS} days"


def check_cost_models(database: Database) -> str:
    """Check the active cost models' bytes. Raises Lacking if versions are damaged."""
    with database.session() as session:
        checked = [(version.name, damaged(version)) for version in StoredFiles(session).cost_models()]
    bad = [f"{name} is damaged" for name, is_damaged in checked if is_damaged]
    if bad:
        raise Lacking(
            _first_few(bad),
            hint="mallorn costmodels rollback MODEL   (to an earlier version), or mallorn doctor --repair",
        )
    return f"{len(checked)} active cost models are intact"


def _flaw(uri: str, model_id: str) -> Flaw | None:
    try:
        fs, path = open_store(uri)
        with fs.open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256")
    except FileNotFoundError:
        return Flaw("is missing", there=False)
    except PermissionError:
        raise Lacking(f"user {os.getuid()} has no permission to read {uri}", hint=f"ls -l {uri}") from None
    except OSError as error:
        return Flaw(f"cannot be read: {error.strerror or error}", there=True)
    is_same = digest.hexdigest() == model_id
    return None if is_same else Flaw("holds other bytes than its name says", there=True)


def _files(uri: str) -> Sequence[str]:
    fs, path = open_store(uri)
    return list(fs.find(path))


def damaged(version: StoredCostModel) -> bool:
    """Return whether a cost model's bytes are damaged, without loading it."""
    try:
        check_bytes("stored", version.blob)
    except InvalidRequest:
        return True
    return False


def _first_few(bad: Sequence[str]) -> str:
    suffix = f", and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    return "; ".join(bad[:NAMED]) + suffix
