"""Priors on tilings for CPUs: full lanes, a good register tile, work for all cores.

In units of log speed, zero for a candidate without a known fault. The plateaus are wide on purpose: the
device must judge what lies on them.
"""

from collections.abc import Sequence

import numpy as np

from workers.search.features import decision_rows, layout, places_by_sketch
from workers.search.measured import Values
from workers.search.space import Candidate, Sketch, Space
from workers.search.tiles import Rows

LANES = 16  # the widest vector of a float; half of it fills a narrower machine as well
FEWEST_SUMS, MOST_SUMS = 8, 24  # accumulators in flight: too few wait, too many spill
LEAST_DEPTH = 8  # a shorter innermost reduction reloads its sums too often
LEAST_TASKS, MOST_TASKS = 8, 1024  # work for all cores, and tasks long enough to be worth starting


def priorities(space: Space, candidates: Sequence[Candidate]) -> Values:
    """The log speed that each candidate probably loses.

    Zero for a candidate without tiles, or with tiles that a rule of its own suggested.
    """
    lost = np.zeros(len(candidates))
    for key, lines in places_by_sketch([candidate.sketch for candidate in candidates]).items():
        sketch = space.by_key[key]
        lost[lines] = _of_rows(sketch, decision_rows(sketch, candidates, lines))
    return lost


def _of_rows(sketch: Sketch, rows: Rows) -> Values:
    where = layout(sketch)
    if not where.spatial or any(choice.suggested for choice in sketch.choices):
        return np.zeros(len(rows))
    logs = np.log2(np.maximum(rows, 1)).astype(np.float64)
    width = rows[:, where.spatial[-1].stop - 1].astype(np.float64)
    idle = np.log2(np.ceil(width / LANES) * LANES / width)
    beside = sum(logs[:, tile.stop - 1] for tile in where.spatial[:-1])
    sums = beside + np.log2(np.ceil(width / LANES))
    lost = 0.5 * idle + 0.3 * _outside(sums, FEWEST_SUMS, MOST_SUMS)
    tasks = np.asarray(sum(logs[:, tile.start] for tile in where.spatial))  # the outermost loops
    lost += 0.1 * _outside(tasks, LEAST_TASKS, MOST_TASKS)
    if where.reduction:
        depth = np.asarray(sum(logs[:, tile.stop - 1] for tile in where.reduction))
        lost += 0.2 * np.maximum(0.0, np.log2(LEAST_DEPTH) - depth)
    return -np.asarray(lost)


def _outside(logs: Values, least: float, most: float) -> Values:
    """The log of how many times a value is too small or too large."""
    return np.asarray(np.maximum(0.0, np.log2(least) - logs) + np.maximum(0.0, logs - np.log2(most)))
