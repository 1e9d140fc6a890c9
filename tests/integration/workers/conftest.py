"""Workers: what races or is SQL of its own runs on both databases in the rooms of db and control."""

import pytest

from tests.fixtures.database import POSTGRES_LONG, migrated_url
from tests.fixtures.finishing import check, exported, inside
from tests.fixtures.timed_models import answers

__all__ = ["answers", "check", "exported", "inside"]


@pytest.fixture(params=POSTGRES_LONG)
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated database without rows."""
    return migrated_url(request)
