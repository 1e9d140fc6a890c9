"""What a recording reads back from the database of a job."""

from collections.abc import Iterator, Sequence

import pytest

from benchmarks.sim.curve_file import Cell, RecordedRound
from benchmarks.sim.recording import read_rounds
from mallorn.core.states import RoundState
from mallorn.db.repositories.leases import LeaseToken
from mallorn.db.repositories.measurements import Measurements, NewMeasurement
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.session import Database
from tests.fixtures.rows import Rows


@pytest.fixture
def rows(sqlite_url: str) -> Iterator[Rows]:
    database = Database(sqlite_url)
    yield Rows(database)
    database.dispose()


def commit(rows: Rows, hold: LeaseToken, new: NewMeasurement) -> None:
    rows.write(lambda session: Measurements(session).add_trials(hold, [new]))


def run_round(rows: Rows, workload: str, latencies_us: Sequence[float | None]) -> None:
    """A closed round; its candidates are committed last slot first, as devices may do."""
    _, hold = rows.claimed_round(workload)
    for slot, latency in reversed(list(enumerate(latencies_us))):
        new = rows.failed(slot) if latency is None else rows.ok(slot, latency)
        commit(rows, hold, new)
    rows.write(lambda session: Rounds(session).close(hold, RoundState.DONE))


def recorded(rows: Rows) -> list[RecordedRound]:
    return read_rounds(rows.database, rows.job_id, Cell("mlp", 3))


def test_candidates_come_in_the_order_of_their_proposal_with_failures_in_place(rows: Rows) -> None:
    run_round(rows, "w0", [9.0, None, 7.0])
    (found,) = recorded(rows)
    assert found.candidates_us == (9.0, None, 7.0)
    assert (found.best_us, found.failures, found.size) == (7.0, 1, 8)
    assert (found.model, found.seed, found.name, found.op, found.weight) == ("mlp", 3, "w0", "matmul", 1)
    assert found.seconds >= 0.0


def test_rounds_are_numbered_and_trials_counted_task_by_task(rows: Rows) -> None:
    for workload, latencies in (("w0", [9.0, 8.0]), ("w1", [None]), ("w0", [7.0])):
        run_round(rows, workload, latencies)
    found = recorded(rows)
    assert [(row.index, row.name, row.round, row.trials) for row in found] == [
        (0, "w0", 0, 2),
        (1, "w1", 0, 1),
        (2, "w0", 1, 3),
    ]
    assert found[1].best_us is None


def test_rounds_that_were_not_finished_are_left_out(rows: Rows) -> None:
    run_round(rows, "w0", [9.0])
    rows.claimed_round("w1")
    assert [row.name for row in recorded(rows)] == ["w0"]
