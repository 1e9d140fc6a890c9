"""The kit's asserts explain themselves like those of any test."""

import pytest

pytest.register_assert_rewrite("costmodels.testing")
