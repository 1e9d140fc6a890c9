"""Commands are tried on SQLite; research/tests/integration tries their queries on both databases."""

from tests.unit.cli.conftest import database_url

__all__ = ["database_url"]
