"""Views (sets of features) of a candidate that cost models read; a row is a flattened view.

A view with several dimensions is a padded table: one line per token, node or statement, in
program order, with 1 in the first column of used lines. `mallorn.workers.features` computes views.
"""

from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import Groups, Matrix, Vector


@dataclass(frozen=True, slots=True)
class View:
    """Name, version and shape of a set of features. New meanings need a new version."""

    name: str
    version: int
    shape: tuple[int, ...]
    lowered: bool = False  # whether computing it needs a compiler
    needs_code: bool = False  # whether the compiler also has to generate code, which takes longer

    @property
    def width(self) -> int:
        return prod(self.shape)

    def tables(self, rows: Matrix) -> NDArray[np.float32]:
        return rows.reshape(len(rows), *self.shape)


DECISIONS: Final = View("decisions", 1, (136,))
"""Sizes of the work, tiles and listed choices; computed from decisions without lowering."""

PRIMITIVES: Final = View("primitives", 1, (40, 24))
"""The sketch's choices, and instructions with decisions, one per line (TLP); not lowered."""

LOOPS: Final = View("loops", 1, (48, 20))
"""The loop tree in preorder: present, parent's line (-1 at a root), features of the node."""

STATEMENTS: Final = View("statements", 1, (12, 165), lowered=True)
"""MetaSchedule's 164 features of each store statement, after lowering."""

CODE: Final = View("code", 1, (48,), lowered=True, needs_code=True)
"""Instruction counts of the generated code (Tuna)."""


class Count(IntEnum):
    """Indices of the first columns of the view `executed`."""

    INSTRUCTIONS = 0
    ARITHMETIC = 1  # on vectors
    PRODUCTS = 2  # fused multiply-adds, counted per vector element
    SIMPLE = 3  # plain additions and multiplications, counted per vector element
    DIVIDES = 4
    LOADS = 5
    LOADED = 6  # bytes
    STORES = 7
    ACCUMULATORS = 8  # of the innermost loop with most arithmetic
    PIECES = 9  # chunks of parallel loops


ACCESSES: Final = 8  # memory accesses of a program in `executed`, four columns of traffic each

EXECUTED: Final = View("executed", 1, (len(Count) + 4 * ACCESSES,), lowered=True, needs_code=True)
"""Counts of executed instructions, and of cache lines moved (Tuna)."""

KERNELS: Final = View("kernels", 1, (38,), lowered=True)
"""Launch sizes, occupancy, memory traffic and a model of the time of lowered kernels of GPUs."""

#: Every view by its name. The extractors are in `mallorn/core/registry.py`.
VIEWS: Final = {
    view.name: view for view in (DECISIONS, PRIMITIVES, LOOPS, STATEMENTS, CODE, EXECUTED, KERNELS)
}
ROUNDING = 1e-4


class WrongRows(InvalidRequest):
    """The feature rows are of another view than the one that the model reads."""


def check_rows(features: Matrix, labels: Vector, groups: Groups) -> None:
    """Raise InvalidRequest unless each row has one group and one finite label of at most 0."""
    if not len(features) == len(labels) == len(groups):
        raise InvalidRequest(
            f"there are {len(features)} rows but {len(labels)} labels and {len(groups)} groups",
            hint="give every row one label and one group",
        )
    wrong = ~np.isfinite(labels) | (labels > ROUNDING)
    if wrong.any():
        raise InvalidRequest(
            f"{wrong.sum()} of {len(labels)} labels are not log(best latency / latency), which is at most 0: "
            f"the first of them is {labels[wrong][0]:g}",
            hint="make labels of latencies with mallorn.costmodels.labels.labels",
        )


def check_width(features: Matrix, view: str) -> None:
    """Raise WrongRows if the rows do not have this view's width."""
    if features.ndim != 2 or features.shape[1] != VIEWS[view].width:
        raise WrongRows(
            f"rows of shape {features.shape} do not fit the view {view} of {VIEWS[view].width} columns",
            hint=f"compute the view {view!r} of the candidates, version {VIEWS[view].version}",
        )
