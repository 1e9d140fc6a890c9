"""Takes exported files that nobody may load, and models without a use, away from the artifact store."""

from posixpath import dirname

from db.repositories.job_removal import Removals
from db.repositories.uploaded_models import Models
from db.session import Database
from mallorn.core.artifact_uris import batch_uri, exports_beside, model_uri, open_store


def remove(uri: str) -> None:
    """Remove a file, or a directory with all in it; what is gone already is no error."""
    fs, path = open_store(uri)
    if fs.exists(path):
        fs.rm(path, recursive=True)


def remove_batches(database: Database, artifacts: str, days: float) -> None:
    """Remove the records of batches of jobs that were deleted, or that ended so many days ago."""
    fs, pattern = open_store(batch_uri(artifacts, "*", "*"))
    folders = {folder.rpartition("/")[2]: folder for folder in map(dirname, fs.glob(pattern))}
    with database.session() as session:
        over = Removals(session).over(folders.keys(), days)
    for job_id in over:
        fs.rm(folders[job_id], recursive=True)


def remove_export(database: Database, job_id: str, uri: str) -> None:
    """Remove what a job exported, unless it exports anew. Whoever dies here leaves it to the next."""
    with database.transaction() as session:
        if Removals(session).forget_export(job_id):
            remove(exports_beside(uri))


def delete_model(database: Database, artifacts: str, model_id: str, owner: str) -> None:
    """Delete an owner's model, and its bytes once that is committed: what could not be deleted is whole.

    Raises NotFound; Conflict while jobs of the owner refer to it. Whoever dies here leaves bytes of no model.
    """
    with database.transaction() as session:
        is_last = Models(session).delete(model_id, owner)
    if is_last:
        remove_forgotten(database, artifacts, model_id)


def remove_forgotten(database: Database, artifacts: str, model_id: str) -> None:
    """Remove the bytes of a model that nobody has; whoever stores it meanwhile waits, and looks for them."""
    with database.transaction() as session:
        if Models(session).forgotten(model_id):
            remove(model_uri(artifacts, model_id))
