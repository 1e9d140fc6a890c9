"""Removes files of deleted jobs and models, and old batch records, from the store."""

import time
from posixpath import dirname

from mallorn.core.artifact_uris import batch_uri, job_exports_uri, model_uri, open_store, parts_uri
from mallorn.db.repositories.archive_and_delete_jobs import Removals
from mallorn.db.repositories.stored_files import Models
from mallorn.db.session import Database


def remove(uri: str) -> None:
    """Remove a file, or a directory with its contents, if it exists."""
    fs, path = open_store(uri)
    if fs.exists(path):
        fs.rm(path, recursive=True)


def remove_old_batch_records(database: Database, artifacts: str, days: float) -> None:
    """Remove batch records of jobs that were deleted or ended more than `days` days ago."""
    fs, pattern = open_store(batch_uri(artifacts, "*", "*"))
    folders = {folder.rpartition("/")[2]: folder for folder in map(dirname, fs.glob(pattern))}
    with database.session() as session:
        expired_ids = Removals(session).filter_ended(folders.keys(), days)
    for job_id in expired_ids:
        fs.rm(folders[job_id], recursive=True)


def remove_export(database: Database, job_id: str, uri: str) -> None:
    """Remove a job's exported files, unless the job exports again in the meantime."""
    with database.transaction() as session:
        if Removals(session).clear_export_uri(job_id):
            remove(job_exports_uri(uri))


def remove_stale_parts(artifacts: str, days: float) -> None:
    """Remove the parts of uploads that received none for `days` days."""
    fs, pattern = open_store(f"{parts_uri(artifacts, '*', '*')}/*")
    newest: dict[str, float] = {}
    for path in fs.glob(pattern):
        folder = dirname(path)
        newest[folder] = max(newest.get(folder, 0.0), fs.modified(path).timestamp())
    for folder, moment in newest.items():
        if moment < time.time() - days * 86400:
            fs.rm(folder, recursive=True)


def delete_model(database: Database, artifacts: str, model_id: str, owner: str) -> None:
    """Delete an owner's model, and then its bytes if no other owner has the model.

    The bytes are removed after the commit, so that a failed deletion leaves a complete
    model. Raises NotFound if the owner lacks the model, Conflict while the owner's jobs
    refer to it.
    """
    with database.transaction() as session:
        is_last = Models(session).delete(model_id, owner)
    if is_last:
        remove_unowned_model(database, artifacts, model_id)


def remove_unowned_model(database: Database, artifacts: str, model_id: str) -> None:
    """Remove the bytes of a model that no owner has; concurrent uploads of it wait."""
    with database.transaction() as session:
        if Models(session).lock_if_unowned(model_id):
            remove(model_uri(artifacts, model_id))
