"""Removes exported files that nobody may load any more."""

from db.repositories.removals import Removals
from db.session import Database
from mallorn.core.artifacts import exports_beside
from services.artifacts import remove


def remove_export(database: Database, job_id: str, uri: str) -> None:
    """Remove what a job exported, unless it exports anew. Whoever dies here leaves it to the next."""
    with database.transaction() as session:
        if Removals(session).forget_export(job_id):
            remove(exports_beside(uri))
