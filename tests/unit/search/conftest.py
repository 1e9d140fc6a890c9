"""The kits' asserts explain themselves like those of any test."""

import pytest

pytest.register_assert_rewrite("workers.search.testing")
