"""Statements and the flow of data between them, each with a network of its own (after Pruner's PaCM)."""

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from costmodels.standardize_inputs import QUANTILES, columns
from costmodels.torch_layers import Layers, Tensors, attention, dense, dense_layers, mean_of, normal
from costmodels.torch_model import Neural
from costmodels.views import STATEMENTS

if TYPE_CHECKING:
    from torch import Tensor

WIDTH: Final = 32
HEADS: Final = 4
LINES, NUMBERS = STATEMENTS.shape
# MetaSchedule's numbers of a statement: arithmetic and loops, then 18 of each of 5 buffers.
FIRST_BUFFER: Final = 1 + 57
BUFFERS: Final = slice(FIRST_BUFFER, FIRST_BUFFER + 5 * 18)
SEEN: Final = len(range(NUMBERS)[BUFFERS])  # numbers of a statement that say what it reads and writes
PARTS: Final = 1 + len(QUANTILES)  # the numbers themselves, and how far each is above its quantiles


class PaCM(Neural):
    """What every statement costs is summed up; self-attention follows the data through their sequence.

    The first branch sees all numbers of a statement. The second sees what each statement reads and writes
    (bytes, lines of the cache, reuse), in the order of the program.

    Pruner's own (ASPLOS'25) differs: its second branch is a sequence of buffers and tiling patterns, 23
    numbers each, through attention of width 128, two residual layers of width 256 follow, and its loss is
    LambdaRank. Here nothing sees tiling patterns, attention is 32 wide, one hidden layer follows, and
    the loss is the squared error with a little LambdaRank.
    """

    KIND: ClassVar[str] = "pacm"
    view: ClassVar[str] = STATEMENTS.name

    @classmethod
    def initial(cls, rng: np.random.Generator, heads: int) -> Layers:
        return {
            **dense_layers(rng, "in", columns(STATEMENTS), WIDTH),
            **dense_layers(rng, "cost", WIDTH, WIDTH),
            "places": rng.normal(0, 0.3, (LINES, WIDTH)).astype(np.float32),
            **dense_layers(rng, "flow", PARTS * SEEN, WIDTH),
            **dense_layers(rng, "look", WIDTH, 3 * WIDTH, gain=0.7),
            **dense_layers(rng, "seen", WIDTH, WIDTH, gain=0.5),
            **dense_layers(rng, "hidden", 2 * WIDTH, WIDTH),
            **dense_layers(rng, "out", WIDTH, heads, gain=0.1),
        }

    @staticmethod
    def scores(layers: Tensors, table: "Tensor", heads: "Tensor") -> "Tensor":
        import torch

        present = table[:, :, 0]
        lines = dense(layers, "cost", dense(layers, "in", table).relu()).relu()
        both = torch.cat([(lines * present[:, :, None]).sum(1), _flow(layers, table, present)], dim=1)
        hidden = dense(layers, "hidden", both).relu()
        return dense(layers, "out", hidden).gather(1, heads[:, None])[:, 0]


def _flow(layers: Tensors, table: "Tensor", present: "Tensor") -> "Tensor":
    """How the statements' data depend on each other."""
    rows, count, _ = table.shape
    data = table.reshape(rows, count, PARTS, NUMBERS)[:, :, :, BUFFERS].reshape(rows, count, PARTS * SEEN)
    lines = dense(layers, "flow", data).relu() + layers["places"][:count]
    lines = lines + dense(layers, "seen", attention(layers, normal(lines), present, HEADS))
    return mean_of(lines, present)
