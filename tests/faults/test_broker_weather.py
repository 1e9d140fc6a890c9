"""Whatever becomes of the broker for a while: afterwards workers hear again, and nobody helps them."""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks.broker.weather import FAULTS, Fault, Heard
from tests.fixtures.waiting import wait_for

AWAY_SEC = 7.0  # longer than a worker waits for an answer


@pytest.fixture
def broker() -> Iterator[Heard]:
    # A broker's socket has a path of at most 107 bytes.
    with TemporaryDirectory(prefix="b-") as folder, Heard(Path(folder)) as broker:
        wait_for(broker.is_heard, "the worker")
        yield broker


@pytest.mark.parametrize("away", FAULTS, ids=lambda fault: str(fault.__name__))
def test_a_worker_hears_again_once_the_broker_is_back(broker: Heard, away: Fault) -> None:
    with away(broker):
        time.sleep(AWAY_SEC)
    wait_for(broker.is_heard, "the worker, after the broker was back")
