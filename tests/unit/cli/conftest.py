"""Commands are tried on SQLite: what they ask of a database is tried on both in tests/integration."""

import pytest


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url
