"""Priors on tilings for CPUs: full vectors, a good register tile, work for all cores of the space's machine.

In units of log speed, zero for a candidate without a known fault. The plateaus are wide on purpose: the
device must judge what lies on them.
"""

from collections.abc import Sequence

import numpy as np

from mallorn.core.values.machine import Machine
from workers.search.features import decision_rows, layout, places_by_sketch
from workers.search.measured import Values
from workers.search.space import Candidate, Sketch, Space
from workers.search.tiles import Rows

LEAST_DEPTH = 8  # a shorter innermost reduction reloads its sums too often
MOST_TASKS = 128  # of a core: tasks must be long enough to be worth starting


def priorities(space: Space, candidates: Sequence[Candidate]) -> Values:
    """The log speed that each candidate probably loses.

    Zero for a candidate without tiles, or with tiles that a rule of its own suggested.
    """
    lost = np.zeros(len(candidates))
    if space.machine.gpu:
        return lost
    for key, lines in places_by_sketch([candidate.sketch for candidate in candidates]).items():
        sketch = space.by_key[key]
        lost[lines] = _of_rows(sketch, decision_rows(sketch, candidates, lines), space.machine)
    return lost


def _of_rows(sketch: Sketch, rows: Rows, machine: Machine) -> Values:
    where = layout(sketch)
    if not where.spatial or any(choice.suggested for choice in sketch.choices):
        return np.zeros(len(rows))
    logs = np.log2(np.maximum(rows, 1)).astype(np.float64)
    width = rows[:, where.spatial[-1].stop - 1].astype(np.float64)
    vectors = np.ceil(width / machine.lanes)
    idle = np.log2(vectors * machine.lanes / width)
    beside = sum(logs[:, tile.stop - 1] for tile in where.spatial[:-1])
    sums = beside + np.log2(vectors)
    lost = 0.5 * idle + 0.3 * _outside(sums, machine.in_flight, machine.registers)
    tasks = np.asarray(sum(logs[:, tile.start] for tile in where.spatial))  # the outermost loops
    lost += 0.1 * _outside(tasks, machine.cores, MOST_TASKS * machine.cores)
    if where.reduction:
        depth = np.asarray(sum(logs[:, tile.stop - 1] for tile in where.reduction))
        lost += 0.2 * np.maximum(0.0, np.log2(LEAST_DEPTH) - depth)
    return -np.asarray(lost)


def _outside(logs: Values, least: float, most: float) -> Values:
    """The log of how many times a value is too small or too large."""
    return np.asarray(np.maximum(0.0, np.log2(least) - logs) + np.maximum(0.0, logs - np.log2(most)))
