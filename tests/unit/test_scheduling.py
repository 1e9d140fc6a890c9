"""Which tests share a process."""

import pytest

from tests.fixtures.command_line import ROOT
from tests.fixtures.scheduling import APART, LONGEST, SERVICE, scope


@pytest.mark.parametrize("file", sorted({*SERVICE, *APART, *LONGEST} - {*SERVICE.values()}))
def test_what_is_named_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


def test_tests_share_the_process_of_their_file_or_of_their_service() -> None:
    assert scope("tests/unit/test_a.py::test_one") == scope("tests/unit/test_a.py::TestB::test_two[c]")
    for file, shared in SERVICE.items():
        assert scope(f"{file}::test_one") == shared
    assert scope("tests/acceptance/test_kill.py::test_one") not in SERVICE.values()


def test_tests_that_only_wait_are_spread() -> None:
    file = min(APART)
    assert scope(f"{file}::test_a[one]") != scope(f"{file}::test_a[other]")
