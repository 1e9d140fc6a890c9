"""Parents and depths in tables of loops. A parent that does not come before its child counts as none."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PARENT = 1  # the column


def parents_of(table: "Tensor") -> "Tensor":
    """The line of each line's parent; the number of lines where there is none."""
    import torch

    lines = table.shape[1]
    there = table[:, :, 0] > 0
    said = table[:, :, PARENT].round().clamp(-1, lines).long()
    before = (said >= 0) & (said < torch.arange(lines))
    known = before & there & there.gather(1, said.clamp(0, lines - 1))
    return torch.where(known, said, lines)


def depths_of(parents: "Tensor") -> "Tensor":
    """How many ancestors each line has."""
    import torch

    rows, lines = parents.shape
    depths = torch.full((rows, lines + 1), -1)
    for line in range(lines):
        depths[:, line] = depths.gather(1, parents[:, line : line + 1])[:, 0] + 1
    return depths[:, :lines]
