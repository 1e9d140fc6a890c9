"""The kits' asserts explain themselves like those of any test; a busy machine fails no property."""

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("workers.search.testing")
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
