"""Self-attention over schedule primitives (TLP)."""

from math import sqrt
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from costmodels.neural import Neural
from costmodels.tables import columns
from costmodels.torches import FAR, Layers, Tensors, dense, dense_layers, mean_of, normal
from costmodels.views import PRIMITIVES

if TYPE_CHECKING:
    from torch import Tensor

WIDTH: Final = 32
HEADS: Final = 4


class TLP(Neural):
    """Lines are primitives with learned positions; one block of self-attention scores the mean line."""

    KIND: ClassVar[str] = "tlp"
    view: ClassVar[str] = PRIMITIVES.name

    @classmethod
    def initial(cls, rng: np.random.Generator, heads: int) -> Layers:
        return {
            "places": rng.normal(0, 0.3, (PRIMITIVES.shape[0], WIDTH)).astype(np.float32),
            **dense_layers(rng, "in", columns(PRIMITIVES), WIDTH),
            **dense_layers(rng, "look", WIDTH, 3 * WIDTH, gain=0.7),
            **dense_layers(rng, "seen", WIDTH, WIDTH, gain=0.5),
            **dense_layers(rng, "up", WIDTH, 2 * WIDTH),
            **dense_layers(rng, "down", 2 * WIDTH, WIDTH, gain=0.5),
            **dense_layers(rng, "hidden", WIDTH, WIDTH),
            **dense_layers(rng, "out", WIDTH, heads, gain=0.1),
        }

    @staticmethod
    def scores(layers: Tensors, table: "Tensor", heads: "Tensor") -> "Tensor":
        present = table[:, :, 0]
        lines = dense(layers, "in", table).relu() + layers["places"][: table.shape[1]]
        lines = lines + dense(layers, "seen", _attention(layers, normal(lines), present))
        lines = lines + dense(layers, "down", dense(layers, "up", normal(lines)).relu())
        hidden = dense(layers, "hidden", mean_of(lines, present)).relu()
        return dense(layers, "out", hidden).gather(1, heads[:, None])[:, 0]


def _attention(layers: Tensors, lines: "Tensor", present: "Tensor") -> "Tensor":
    """Self-attention of each line over the present lines."""
    rows, count, width = lines.shape
    looks = dense(layers, "look", lines).reshape(rows, count, 3, HEADS, width // HEADS)
    asks, offers, values = looks.permute(2, 0, 3, 1, 4).unbind(0)
    match = asks @ offers.transpose(-1, -2) / sqrt(width // HEADS)
    share = match.masked_fill(present[:, None, None, :] == 0, FAR).softmax(-1)
    return (share @ values).transpose(1, 2).reshape(rows, count, width)
