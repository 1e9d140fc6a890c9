"""What planning, sweeping, proposing and training read does not grow with the tables."""

from collections.abc import Iterator

import pytest

from benchmarks.growing_tables import Cost, GrowingTables, Scale
from mallorn.core.values import learning_curve
from mallorn.db.repositories import trials
from mallorn.db.session import Database
from mallorn.workers.round import train_cost_model

FEW_ROWS, GROWTH = 16_000, 8
#: Blocks that an index gets deeper by, in all queries of a cost, and what chance adds.
DEEPER = 40
SCALE = Scale(jobs=100, workloads=20, tasks=5)


@pytest.fixture
def tables(clean_postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[GrowingTables]:
    """Tables in which all bounds on what is read are passed from the start."""
    monkeypatch.setattr(trials, "NEWEST", 64)
    monkeypatch.setattr(trials, "FASTEST", 16)
    monkeypatch.setattr(learning_curve, "MOST_POINTS", 32)
    monkeypatch.setattr("benchmarks.growing_tables.MOST_ROWS", 512)
    monkeypatch.setattr(train_cost_model, "MOST_ROWS", 512)
    database = Database(clean_postgres, answer_sec=None)
    yield GrowingTables(database, SCALE)
    database.dispose()


@pytest.mark.postgres
def test_with_eight_times_the_measurements_every_cost_touches_about_as_many_blocks(
    tables: GrowingTables,
) -> None:
    tables.grow(FEW_ROWS)
    few = tables.costs()
    tables.grow(GROWTH * FEW_ROWS)
    many = tables.costs()

    def grown(before: Cost, after: Cost) -> bool:
        return after.blocks > 1.5 * before.blocks + DEEPER

    assert {name: (few[name].blocks, many[name].blocks) for name in few if grown(few[name], many[name])} == {}
    assert all(cost.blocks for cost in many.values())
