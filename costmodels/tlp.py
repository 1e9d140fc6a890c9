"""Self-attention over schedule primitives (TLP)."""

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from costmodels.standardize_inputs import columns
from costmodels.torch_layers import Layers, Tensors, attention, dense, dense_layers, mean_of, normal
from costmodels.torch_model import Neural
from costmodels.views import PRIMITIVES

if TYPE_CHECKING:
    from torch import Tensor

WIDTH: Final = 32
HEADS: Final = 4


class TLP(Neural):
    """Embeds primitives with their positions, applies self-attention, and scores the mean."""

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
        lines = lines + dense(layers, "seen", attention(layers, normal(lines), present, HEADS))
        lines = lines + dense(layers, "down", dense(layers, "up", normal(lines)).relu())
        hidden = dense(layers, "hidden", mean_of(lines, present)).relu()
        return dense(layers, "out", hidden).gather(1, heads[:, None])[:, 0]
