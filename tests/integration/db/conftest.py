"""Queries: each runs on both databases."""

import pytest

from tests.fixtures.database import BACKENDS, migrated_url


@pytest.fixture(params=BACKENDS)
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated database without rows."""
    return migrated_url(request)
