"""Fixtures of workers' tests."""

from tests.fixtures.finishing import check, exported, inside
from tests.fixtures.timed_models import answers

__all__ = ["answers", "check", "exported", "inside"]
