"""How many connections to Postgres a coordinator opens at most, and that the runbook says the same."""

from pathlib import Path

from sqlalchemy.pool import QueuePool

from mallorn.core.settings import Settings
from mallorn.db.session import Database
from mallorn.services.coordinator.web.app_parts import AppParts

RUNBOOK = Path(__file__).parents[3] / "docs" / "runbook.md"


def most_connections(database: Database) -> int:
    """Read the limits of a database's pool, which opens no connection for that."""
    pool = database.engine.pool
    assert isinstance(pool, QueuePool)
    return pool.size() + pool._max_overflow


def test_the_runbook_says_how_many_connections_a_process_opens_at_most(tmp_path: Path) -> None:
    settings = Settings(
        database_url="postgresql://nobody@127.0.0.1:1/none", redis_url="memory://", data_dir=tmp_path
    )
    parts = AppParts.from_settings(settings)
    other = Database(settings.database_url)
    coordinator = most_connections(parts.database) + most_connections(parts.patient)
    said = f"A coordinator has at most {coordinator} connections, another process {most_connections(other)}."
    assert said in RUNBOOK.read_text()
    parts.close()
    other.dispose()
