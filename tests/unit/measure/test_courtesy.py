"""A child that gives way never computes while somebody times, and always goes on afterwards."""

from pathlib import Path

import pytest

from tests.fixtures.waiting import PATIENCE, wait_for
from workers.host.cores import Cores
from workers.host.courtesy import giving_way


class Computing:
    """A child that knows whether it runs."""

    def __init__(self) -> None:
        self.runs = True
        self.turns = 0

    def suspend(self) -> None:
        self.runs = False

    def resume(self) -> None:
        self.runs = True
        self.turns += 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cores.lock"


def test_it_stands_still_while_somebody_times_and_goes_on_afterwards(path: Path) -> None:
    child, timer = Computing(), Cores(path)
    with giving_way(child, Cores(path), slice_sec=0.01):
        wait_for(lambda: child.turns, "its first slice")
        for _ in range(5):
            assert timer.take(PATIENCE)
            before = child.turns
            assert not child.runs
            assert child.turns == before
            timer.give_back()
            wait_for(lambda before=before: child.turns > before, "its next slice")


def test_when_its_work_is_over_nobody_waits_for_it(path: Path) -> None:
    child = Computing()
    with giving_way(child, Cores(path), slice_sec=PATIENCE):
        wait_for(lambda: child.runs and child.turns, "its slice")
    assert Cores(path).take(PATIENCE)
    assert child.runs
