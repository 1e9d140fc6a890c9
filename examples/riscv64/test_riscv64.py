"""The kind of hardware keeps its contract: run by pytest in a checkout of Mallorn."""

import pytest
from mallorn_riscv64.kind import Riscv64

from tests.kits.kinds import TargetKindTestCase


class TestRiscv64(TargetKindTestCase):
    @pytest.fixture
    def kind(self) -> Riscv64:
        return Riscv64()
