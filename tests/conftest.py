"""Fixtures that several folders of tests share."""

pytest_plugins = [
    "tests.fixtures.coordinator",
    "tests.fixtures.database",
    "tests.fixtures.fleet",
    "tests.fixtures.service",
    "tests.fixtures.workshop",
]
