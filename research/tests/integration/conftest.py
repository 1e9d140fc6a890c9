"""Queries of the package run on the databases on which those of the service run."""

from tests.integration.conftest import database_url

__all__ = ["database_url"]
