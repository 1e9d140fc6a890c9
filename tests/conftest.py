"""What all tests share: fixtures, kits whose asserts explain themselves, and patience with busy machines."""

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Before anything imports a kit: tests in one folder may use the kit of another room.
pytest.register_assert_rewrite(
    "costmodels.testing",
    "services.planner.testing",
    "tests.fixtures.answers",
    "workers.features.testing",
    "workers.measure.stopping.testing",
    "workers.search.testing",
)

pytest_plugins = [
    "tests.fixtures.coordinator",
    "tests.fixtures.database",
    "tests.fixtures.fleet",
    "tests.fixtures.service",
    "tests.fixtures.workshop",
]
