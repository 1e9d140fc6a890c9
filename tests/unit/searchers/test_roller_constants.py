"""First guesses hang on few of the roller's constants: most may be half or twice what they are.

`tests/integration/tvm_graph/test_recorded_guesses.py` asks the same of recorded trials.
"""

from functools import cache

import numpy as np
import pytest

from mallorn.searchers.roller.rank_candidates import Constructor
from mallorn.searchers.tile_factorizations import Rows
from tests.fixtures.odd_tasks import MACHINES, TASKS, sketch_of
from tests.fixtures.roller_constants import CONSTANTS, FACTORS, HANGS, change

MOST: float = 1.1  # times what today's first guess should take


def guess(task: str, machine: str) -> Rows:
    """The first of a task."""
    guesses = Constructor([TASKS[task]], MACHINES[machine]).guesses(sketch_of(TASKS[task]))
    return guesses.rows[[np.argmin(guesses.us)]]


def us(task: str, machine: str, row: Rows) -> float:
    found = Constructor([TASKS[task]], MACHINES[machine]).time_us(sketch_of(TASKS[task]), row)
    assert found is not None
    return float(found[0])


@cache
def known_us(task: str, machine: str) -> float:
    return us(task, machine, guess(task, machine))


@pytest.mark.pairwise
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "factor"), [(name, by) for name in CONSTANTS for by in FACTORS if (name, by) not in HANGS]
)
def test_a_constant_halved_or_doubled_costs_no_task_more_than_a_tenth(
    name: str, factor: float, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {task: known_us(task, machine) for task in TASKS}
    with monkeypatch.context() as patch:
        change(patch, name, factor)
        guesses = {task: guess(task, machine) for task in TASKS}
    losses = {task: us(task, machine, row) / known[task] for task, row in guesses.items()}
    assert max(losses.values()) <= MOST, losses


def test_what_guesses_hang_on_is_among_the_constants() -> None:
    assert {name for name, _ in HANGS} < CONSTANTS.keys()
