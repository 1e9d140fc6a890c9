"""Deletes models of owners who have no use for them."""

from db.repositories.models import Models
from db.session import Database
from mallorn.core.artifacts import model_uri
from services.artifacts import remove


def delete_model(database: Database, artifacts: str, model_id: str, owner: str) -> None:
    """Delete an owner's model, and its bytes once that is committed: what could not be deleted is whole.

    Raises NotFound; Conflict while jobs of the owner refer to it. Whoever dies here leaves bytes of no model.
    """
    with database.transaction() as session:
        is_last = Models(session).delete(model_id, owner)
    if is_last:
        with database.transaction() as session:
            if Models(session).forgotten(model_id):
                remove(model_uri(artifacts, model_id))
