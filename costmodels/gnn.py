"""A graph network: the loops and statements of a loop tree exchange messages."""

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from costmodels.standardize_inputs import columns, parents_of
from costmodels.torch_layers import FAR, Layers, Tensors, dense, dense_layers
from costmodels.torch_model import Neural
from costmodels.views import LOOPS

if TYPE_CHECKING:
    from torch import Tensor

WIDTH: Final = 32
ROUNDS: Final = 3


class GNN(Neural):
    """One node per line of the loop tree; 3 message rounds, then attention and max pooling."""

    KIND: ClassVar[str] = "gnn"
    view: ClassVar[str] = LOOPS.name
    KEPT: ClassVar[int] = 2

    @classmethod
    def initial(cls, rng: np.random.Generator, heads: int) -> Layers:
        layers = dense_layers(rng, "in", columns(LOOPS), WIDTH)
        for index in range(ROUNDS):
            layers |= dense_layers(rng, f"round{index}", 3 * WIDTH, WIDTH, gain=0.5)
        layers |= dense_layers(rng, "weight", WIDTH, WIDTH)
        layers |= dense_layers(rng, "hidden", 2 * WIDTH, WIDTH)
        return layers | dense_layers(rng, "out", WIDTH, heads, gain=0.1)

    @staticmethod
    def scores(layers: Tensors, table: "Tensor", heads: "Tensor") -> "Tensor":
        import torch

        present, parents = table[:, :, 0], parents_of(table)
        is_node = present[:, :, None]
        nodes = _relu_in(layers, table) * is_node
        for index in range(ROUNDS):
            parent, children = _messages(nodes, parents)
            update = dense(layers, f"round{index}", torch.cat([nodes, parent, children], dim=-1)).relu()
            nodes = (nodes + update) * is_node
        weight = dense(layers, "weight", nodes).masked_fill(is_node == 0, FAR).softmax(1)
        pooled = torch.cat([(weight * nodes).sum(1), nodes.amax(1)], dim=-1)
        hidden = dense(layers, "hidden", pooled).relu()
        return dense(layers, "out", hidden).gather(1, heads[:, None])[:, 0]


def _relu_in(layers: Tensors, table: "Tensor") -> "Tensor":
    """Apply the first layer without the column of the parent's line, which is not a feature."""
    features = table.clone()
    features[:, :, 1] = 0
    return dense(layers, "in", features).relu()


def _messages(nodes: "Tensor", parents: "Tensor") -> tuple["Tensor", "Tensor"]:
    """Return for each node the state of its parent and the mean state of its children.

    Nodes without a parent point to an extra node after the last line, whose state is zero.
    """
    import torch

    rows, lines, width = nodes.shape
    zero_state = nodes.new_zeros(rows, 1, width)
    address = parents[:, :, None].expand(-1, -1, width)
    parent_states = torch.cat([nodes, zero_state], dim=1).gather(1, address)
    child_sums = nodes.new_zeros(rows, lines + 1, width).scatter_add(1, address, nodes)
    children = nodes.new_zeros(rows, lines + 1).scatter_add(1, parents, torch.ones_like(nodes[:, :, 0]))
    return parent_states, (child_sums / children.clamp(min=1)[:, :, None])[:, :lines]
