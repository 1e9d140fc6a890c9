"""What the service asks of Postgres for a round stays within its budget, however long a job's history is.

`python -m benchmarks.scale.statements` prints the figures. The budgets in tests/budgets.toml fall with
them, and rise for nothing.
"""

import tomllib
from dataclasses import asdict

import pytest

from benchmarks.scale.statements import HISTORIES, count_by_part
from tests.fixtures.command_line import ROOT
from tests.fixtures.workshop import Workshop

BUDGETS = tomllib.loads((ROOT / "tests" / "budgets.toml").read_text())["statements"]
ON_POSTGRES = pytest.mark.parametrize(
    "database_url", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)


@ON_POSTGRES
@pytest.mark.parametrize("history", HISTORIES)
def test_no_part_of_a_round_asks_for_more_than_its_budget(workshop: Workshop, history: int) -> None:
    counted = {part: asdict(counts) for part, counts in count_by_part(workshop, history).items()}
    budgets = BUDGETS[f"history-{history}"]
    assert counted.keys() == budgets.keys()
    exceeded = {
        f"{part}: {name}": (count, budgets[part][name])
        for part, counts in counted.items()
        for name, count in counts.items()
        if count > budgets[part][name]
    }
    assert not exceeded
