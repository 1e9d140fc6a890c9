"""Alembic's entry: runs the migrations inside the transaction of the connection it is handed."""

from alembic import context
from sqlalchemy import Connection

from mallorn.core.settings import settings
from mallorn.db.engine import WRITE, create_engine
from mallorn.db.tables import Base


def run(connection: Connection) -> None:
    """All of them or none: DDL is transactional on both databases."""
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def run_from_alembic_command() -> None:
    """Called by the command `alembic`, which hands over no connection."""
    engine = create_engine(settings().database_url, foreign_keys=False)
    with engine.execution_options(**{WRITE: True}).begin() as connection:
        run(connection)


if (handed := context.config.attributes.get("connection")) is not None:
    run(handed)
else:
    run_from_alembic_command()
