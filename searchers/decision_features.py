"""Computes view `decisions`: the same columns for all workloads, without lowering.

Tiles are right-aligned, so that the last spatial axis (which is vectorised) and its
innermost factor have the same columns for every rank. Values are logarithms (log2).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mallorn.costmodels import decision_columns
from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Matrix, Sketch
from mallorn.searchers.tile_factorizations import Rows

DESCRIPTORS, ORDINALS, STRUCTURES = 32, 8, 16
LOCATIONS = 4


@dataclass(frozen=True)
class Layout:
    """Columns of a decision vector: spatial tiles, tiles of reductions, lists, locations."""

    spatial: tuple[slice, ...]
    reduction: tuple[slice, ...]
    listed: tuple[tuple[int, Choice], ...]
    locations: tuple[int, ...]


@lru_cache(maxsize=1024)
def group_choices(sketch: Sketch) -> Layout:
    """Group a sketch's choices; tiles with fewer levels than the deepest are reductions."""
    deepest = max((c.width for c in sketch.choices if c.kind is ChoiceKind.TILE), default=0)
    spatial: list[slice] = []
    reduction: list[slice] = []
    lists: list[tuple[int, Choice]] = []
    locations: list[int] = []
    for columns, choice in sketch.decision_slices:
        if choice.kind is ChoiceKind.TILE:
            group = spatial if choice.width == deepest else reduction
            group.append(columns)
        elif choice.kind is ChoiceKind.CATEGORICAL:
            lists.append((columns.start, choice))
        else:
            locations.append(columns.start)
    return Layout(tuple(spatial), tuple(reduction), tuple(lists), tuple(locations))


def compute_sketch_features(sketch: Sketch, descriptors: Sequence[float], rows: Rows) -> Matrix:
    columns = group_choices(sketch)
    logs = np.log2(np.maximum(rows, 1)).astype(np.float32)
    spatial = _levels(logs, columns.spatial, decision_columns.SPATIAL_LEVELS)
    reduction = _levels(logs, columns.reduction, decision_columns.REDUCTION_LEVELS)
    # For listed choices, use the label (or the index without labels) on a log scale.
    lists = np.zeros((len(rows), len(columns.listed)), dtype=np.float32)
    for position, (column, choice) in enumerate(columns.listed):
        indices = rows[:, column]
        values = np.array(choice.labels)[indices] if choice.labels else indices
        lists[:, position] = np.log2(1 + np.abs(values)) * np.sign(values)
    shared_columns = np.tile(_shared(sketch, tuple(descriptors)), (len(rows), 1))
    locations = _pad(rows[:, list(columns.locations)].astype(np.float32), LOCATIONS)
    tiles = [
        _last_axes(spatial, decision_columns.SPATIAL_AXES),
        _last_axes(reduction, decision_columns.REDUCTION_AXES),
    ]
    return np.hstack(
        [
            shared_columns,
            *tiles,
            _pad(lists, decision_columns.LISTED),
            locations,
            decision_columns.compute_derived_columns(spatial, reduction, lists),
        ]
    )


def places_by_sketch(names: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        places.setdefault(name, []).append(index)
    return places


def decision_rows(sketch: Sketch, candidates: Sequence[Candidate], lines: Sequence[int]) -> Rows:
    rows = np.array([candidates[index].decisions for index in lines], dtype=np.int32)
    return rows.reshape(len(lines), sketch.decision_count)


@lru_cache(maxsize=1024)
def _shared(sketch: Sketch, descriptors: tuple[float, ...]) -> Matrix:
    row = np.zeros(decision_columns.SHARED, dtype=np.float32)
    count = descriptors[:DESCRIPTORS]
    row[: len(count)] = count
    row[DESCRIPTORS + min(sketch.ordinal, ORDINALS - 1)] = 1
    structure = ";".join(f"{c.kind}{c.width}" for c in sketch.choices)
    bucket = hashlib.sha256(structure.encode()).digest()[0] % STRUCTURES
    row[DESCRIPTORS + ORDINALS + bucket] = 1
    row[-1] = len(sketch.choices)
    return row


def _levels(logs: Matrix, tiles: Sequence[slice], level_count: int) -> Matrix:
    """Return log2 factors (rows x axes x levels, innermost last); merge surplus outer levels."""
    aligned = np.zeros((len(logs), len(tiles), level_count), dtype=np.float32)
    for axis, columns in enumerate(tiles):
        tile = logs[:, columns]
        count = min(level_count, tile.shape[1])
        aligned[:, axis, level_count - count :] = tile[:, tile.shape[1] - count :]
        aligned[:, axis, 0] += tile[:, : tile.shape[1] - count].sum(axis=1)
    return aligned


def _last_axes(levels: Matrix, axes: int) -> Matrix:
    aligned = np.zeros((len(levels), axes, levels.shape[2]), dtype=np.float32)
    count = min(axes, levels.shape[1])
    aligned[:, axes - count :] = levels[:, levels.shape[1] - count :]
    return aligned.reshape(len(levels), -1)


def _pad(matrix: Matrix, width: int) -> Matrix:
    count = matrix[:, :width]
    return np.pad(count, ((0, 0), (0, width - count.shape[1])))
