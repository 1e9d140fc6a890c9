"""Tables reach a network centred over what is present, and as short as the rows allow."""

import numpy as np

from mallorn.costmodels.views import View
from mallorn_research.costmodels.standardize_inputs import fit_table_scaling, row_width

SMALL = View("small", 1, (3, 4))  # present, parent, and two columns of values


def flat(*lines: tuple[float, ...]) -> np.ndarray:
    table = np.zeros((3, 4), dtype=np.float32)
    table[: len(lines)] = lines
    return table.reshape(1, -1)


ONE = flat((1, -1, 10, 5))
TWO = flat((1, -1, 20, 5), (1, 0, 30, 5))


def test_a_column_is_centred_over_the_lines_that_are_present() -> None:
    made = fit_table_scaling(np.vstack([ONE, TWO]), SMALL).standardize(TWO, SMALL, structure_columns=2)
    assert made.shape == (1, 2, row_width(SMALL))
    assert made[0, :, 2].tolist() == [0.0, np.float32(1.5**0.5)]  # mean 20, deviation the root of 200 / 3
    assert not made[:, :, 3].any(), "what never varies says nothing"


def test_structure_stays_as_it_is_and_lines_are_as_many_as_the_longest_row_has() -> None:
    rows = np.vstack([ONE, TWO])
    made = fit_table_scaling(rows, SMALL).standardize(rows, SMALL, structure_columns=2)
    assert made[:, :, 0].tolist() == [[1, 0], [1, 1]]
    assert made[:, :, 1].tolist() == [[-1, -1], [-1, 0]]
    assert not made[0, 1, 2:].any()


def test_rows_with_no_line_at_all_are_a_single_line_of_nothing() -> None:
    empty = np.zeros((2, 12), dtype=np.float32)
    made = fit_table_scaling(empty, SMALL).standardize(empty, SMALL, structure_columns=1)
    assert made.shape == (2, 1, row_width(SMALL))
    assert not made.any()
