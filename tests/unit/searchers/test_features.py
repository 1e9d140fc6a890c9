"""What a cost model sees: stable columns, whatever the workload."""

import numpy as np

from mallorn.costmodels.decision_columns import SHARED, SPATIAL_AXES, SPATIAL_LEVELS, WIDTH
from mallorn.searchers.decision_features import DESCRIPTORS, compute_sketch_features
from mallorn.searchers.space import Choice, ChoiceKind, Sketch

LANE = SHARED + SPATIAL_AXES * SPATIAL_LEVELS - 1


def tile(width: int) -> Choice:
    return Choice(ChoiceKind.TILE, width, extent=64, limit=64)


def row(choices: list[Choice], decisions: list[int], descriptors: tuple[float, ...] = ()) -> np.ndarray:
    rows = np.array([decisions], dtype=np.int32)
    return compute_sketch_features(Sketch("any", "", tuple(choices)), descriptors, rows)[0]


def test_the_vectorised_factor_has_its_own_column_whatever_the_rank() -> None:
    flat = row([tile(4), tile(2)], [1, 2, 2, 16, 32, 2])
    deep = row([tile(4), tile(4), tile(2)], [64, 1, 1, 1, 1, 2, 2, 16, 32, 2])
    assert flat[LANE] == deep[LANE] == 4.0


def test_choices_beyond_the_columns_still_count_in_the_sums() -> None:
    many = [tile(4)] * (SPATIAL_AXES + 3)
    ones = [64, 1, 1, 1] * len(many)
    changed = [32, 1, 1, 2, *ones[4:]]
    assert not np.array_equal(row(many, ones), row(many, changed))


def test_descriptors_are_padded_and_cut() -> None:
    assert row([], [], (7.0,))[:3].tolist() == [7.0, 0.0, 0.0]
    long = row([], [], tuple(range(DESCRIPTORS + 9)))
    assert len(long) == WIDTH
    assert long[:DESCRIPTORS].tolist() == list(range(DESCRIPTORS))


def test_unroll_steps_are_seen_by_what_they_stand_for() -> None:
    def unroll(labels: tuple[int, ...]) -> Choice:
        return Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1), labels=labels)

    first = row([tile(4), unroll((0, 16))], [64, 1, 1, 1, 1])
    second = row([tile(4), unroll((16, 0))], [64, 1, 1, 1, 0])
    np.testing.assert_array_equal(first, second)


def test_sketches_of_another_structure_look_different() -> None:
    one = row([tile(4)], [64, 1, 1, 1])
    other = row([tile(4), tile(2)], [64, 1, 1, 1, 64, 1])
    assert not np.array_equal(one[DESCRIPTORS:SHARED], other[DESCRIPTORS:SHARED])
