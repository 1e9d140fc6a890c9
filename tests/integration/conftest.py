"""Folders together. Queries run on both databases in `db`, and what races does where it is marked `BOTH`."""

import pytest

from tests.fixtures.database import POSTGRES_LONG, migrated_url
from tests.fixtures.forked_children import executed_children, forked_children

__all__ = ["executed_children", "forked_children"]


@pytest.fixture(params=POSTGRES_LONG)
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated database without rows."""
    return migrated_url(request)
