"""Folders together. Queries run on both databases in `db`, and what races does where it is marked `BOTH`."""

import pytest

from tests.fixtures.database import POSTGRES_LONG, migrated_url


@pytest.fixture(params=POSTGRES_LONG)
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated database without rows."""
    return migrated_url(request)
