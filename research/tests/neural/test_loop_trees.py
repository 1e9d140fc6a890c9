"""Parents are read from tables; what cannot be one is no parent."""

import numpy as np
import pytest
import torch

from mallorn_research.costmodels.standardize_inputs import depths_of, parents_of


def table(*parents: float, present: int | None = None) -> torch.Tensor:
    lines = len(parents)
    there = [1.0] * (lines if present is None else present)
    there += [0.0] * (lines - len(there))
    return torch.tensor(np.stack([there, parents], axis=1)[None], dtype=torch.float32)


def test_a_tree_in_preorder_is_read_as_it_is_written() -> None:
    parents = parents_of(table(-1, 0, 1, 0, 3))
    assert parents.tolist() == [[5, 0, 1, 0, 3]]
    assert depths_of(parents).tolist() == [[0, 1, 2, 1, 2]]


@pytest.mark.parametrize("no_parent", [1.0, 2.0, 7.0, 1e30, -1e30])
def test_a_line_is_nobodys_child_whose_parent_does_not_come_before_it(no_parent: float) -> None:
    assert parents_of(table(-1, no_parent, 1)).tolist() == [[3, 3, 1]]


def test_absent_lines_are_nobodys_parent_and_nobodys_child() -> None:
    assert parents_of(table(-1, 0, 0, 2, present=2)).tolist() == [[4, 0, 4, 4]]
