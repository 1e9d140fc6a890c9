"""Whether a database holds API keys: asked before anything listens."""

from db.migrate import OldTables, check
from db.repositories.api_keys import ApiKeys
from db.session import Database
from mallorn.core.errors import Unavailable


def holds_keys(url: str) -> bool:
    """Whether there ever was an API key in this database; one that is not there yet holds none."""
    database = Database(url)
    try:
        check(database)
        with database.session() as session:
            return ApiKeys(session).exist()
    except (OldTables, Unavailable):
        return False
    finally:
        database.dispose()
