"""A network with a branch for statements and one for their data flow (Pruner's PaCM)."""

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
# MetaSchedule's features of a statement: arithmetic and loops, then 18 features per buffer
# (5).
FIRST_BUFFER: Final = 1 + 57
BUFFERS: Final = slice(FIRST_BUFFER, FIRST_BUFFER + 5 * 18)
SEEN: Final = len(range(NUMBERS)[BUFFERS])  # features of a statement's reads and writes
PARTS: Final = 1 + len(QUANTILES)  # the features themselves, and their excess over each quantile


class PaCM(Neural):
    """Sums up a cost per statement, and applies self-attention to the statements' data flow.

    The first branch reads all features of a statement. The second reads the features of its
    reads and writes (bytes, cache lines, reuse), in program order.

    Pruner (ASPLOS'25) differs: its second branch is a sequence of buffers and tiling patterns,
    23 features each, with attention of width 128, followed by two residual layers of width
    256; its loss is LambdaRank. Here tiling patterns are not used, attention is 32 wide, one
    hidden layer follows, and the loss is the squared error plus LambdaRank with a small
    weight.
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
        branches = torch.cat([(lines * present[:, :, None]).sum(1), _flow(layers, table, present)], dim=1)
        hidden = dense(layers, "hidden", branches).relu()
        return dense(layers, "out", hidden).gather(1, heads[:, None])[:, 0]


def _flow(layers: Tensors, table: "Tensor", present: "Tensor") -> "Tensor":
    """Return the embedding of the data flow between statements, averaged over statements."""
    rows, count, _ = table.shape
    data = table.reshape(rows, count, PARTS, NUMBERS)[:, :, :, BUFFERS].reshape(rows, count, PARTS * SEEN)
    lines = dense(layers, "flow", data).relu() + layers["places"][:count]
    lines = lines + dense(layers, "seen", attention(layers, normal(lines), present, HEADS))
    return mean_of(lines, present)
