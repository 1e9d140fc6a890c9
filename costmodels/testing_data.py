"""Synthetic rows of any view, whose speed depends on a few columns that a model can find."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from costmodels.base import FAILED_LABEL, Matrix, Vector
from costmodels.views import LOOPS, VIEWS

Data = tuple[Matrix, Vector, NDArray[np.int64]]

COLUMNS: Final = 24  # that vary
ACROSS: Final = 8  # of them in one line of a table
OFFSET: Final = 4  # first column of a line that varies


def easy_data(rows: int, seed: int, view: str = "decisions") -> Data:
    """Rows, labels and groups with ids that are neither sorted nor dense."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 8, size=(rows, COLUMNS)).astype(np.float32)
    slowdown = 0.3 * np.abs(values[:, 2] - 4) + 0.2 * np.maximum(values[:, 5], values[:, 7])
    labels = np.maximum(FAILED_LABEL, -slowdown).astype(np.float32)
    labels[values[:, 9] == 7] = FAILED_LABEL
    groups = rng.choice(np.array([7, 10**12, 3]), size=rows)
    return laid_out(values, view, rng), labels, groups


def laid_out(values: Matrix, view: str, rng: np.random.Generator) -> Matrix:
    """The values in a view's columns; a table has one line per eight values, and some empty ones."""
    shape = VIEWS[view].shape
    table = np.zeros((len(values), *shape), dtype=np.float32)
    if len(shape) == 1:
        table[:, :COLUMNS] = values
        return table
    used = COLUMNS // ACROSS
    present = np.arange(shape[0]) < rng.integers(used, shape[0] // 2, len(values))[:, None]
    table[:, :, 0] = present
    table[:, :, 2] = present * (np.arange(shape[0]) + 1)
    table[:, :used, OFFSET : OFFSET + ACROSS] = values.reshape(-1, used, ACROSS)
    if view == LOOPS.name:
        # A tree in preorder; every third line starts a new nest.
        parents = [0 if line % 3 == 1 else line - 1 for line in range(shape[0])]
        table[:, :, 1] = np.where(present, parents, 0)
    return table.reshape(len(values), -1)
