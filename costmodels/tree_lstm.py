"""A recursive network over the loop tree, from the innermost level outwards."""

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from costmodels.standardize_inputs import PARENT, columns, depths_of, parents_of
from costmodels.torch_layers import Layers, Tensors, dense, dense_layers
from costmodels.torch_model import Neural
from costmodels.views import LOOPS

if TYPE_CHECKING:
    from torch import Tensor

WIDTH: Final = 32


class TreeLSTM(Neural):
    """A child-sum Tree-LSTM that processes all nodes of a level at once.

    An additional last node, the parent of all roots, gets the state of the program.
    """

    KIND: ClassVar[str] = "tree-lstm"
    view: ClassVar[str] = LOOPS.name
    KEPT: ClassVar[int] = 2

    @classmethod
    def initial(cls, rng: np.random.Generator, heads: int) -> Layers:
        layers = dense_layers(rng, "read", columns(LOOPS), WIDTH)
        layers |= dense_layers(rng, "in", WIDTH, 4 * WIDTH, gain=0.7)
        layers["in.offsets"][3 * WIDTH :] = 1.0  # start with open forget gates
        layers |= dense_layers(rng, "within", WIDTH, 3 * WIDTH, gain=0.5)
        layers |= dense_layers(rng, "forget", WIDTH, WIDTH, gain=0.5)
        layers |= dense_layers(rng, "hidden", WIDTH, WIDTH)
        return layers | dense_layers(rng, "out", WIDTH, heads, gain=0.1)

    @staticmethod
    def scores(layers: Tensors, table: "Tensor", heads: "Tensor") -> "Tensor":
        hidden = dense(layers, "hidden", _program(layers, table)).relu()
        return dense(layers, "out", hidden).gather(1, heads[:, None])[:, 0]


def _program(layers: Tensors, table: "Tensor") -> "Tensor":
    """Return the state of each row's last node, which comes after its other lines."""
    import torch

    rows, lines, _ = table.shape
    parents = parents_of(table)
    first = torch.arange(rows)[:, None] * (lines + 1)
    parent = torch.cat([parents + first, first + lines], dim=1).flatten()
    level = torch.cat([depths_of(parents) + 1, torch.zeros_like(first)], dim=1)
    level[:, :lines].masked_fill_(table[:, :, 0] == 0, -1)
    gates = _gates(layers, table).flatten(0, 1)
    states, memories = (gates.new_zeros(len(gates), WIDTH) for _ in range(2))
    for depth in range(int(level.max()), 0, -1):
        nodes = (level.flatten() == depth).nonzero()[:, 0]
        state, memory = _cell(layers, gates[nodes], states[nodes], memories[nodes])
        above = parent[nodes]
        forget_gates = (gates[above, 3 * WIDTH :] + dense(layers, "forget", state)).sigmoid()
        states = states.index_add(0, above, state)
        memories = memories.index_add(0, above, forget_gates * memory)
    last = (first + lines)[:, 0]
    return _cell(layers, gates[last], states[last], memories[last])[0]


def _gates(layers: Tensors, table: "Tensor") -> "Tensor":
    """Return the lines' input to the gates; zero for the last node, which has no line."""
    features = table.clone()
    features[:, :, PARENT] = 0  # an address, not a feature
    read = dense(layers, "read", features).relu()
    lines = read.new_zeros(len(table), table.shape[1] + 1, WIDTH)
    lines[:, :-1] = read
    return dense(layers, "in", lines)


def _cell(
    layers: Tensors, gates: "Tensor", child_states: "Tensor", child_memories: "Tensor"
) -> tuple["Tensor", "Tensor"]:
    """Return nodes' state and memory from the sums of their children's states and memories."""
    raw_gates = gates[:, : 3 * WIDTH] + dense(layers, "within", child_states)
    input_gate, output_gate, update = raw_gates.chunk(3, dim=1)
    memory = input_gate.sigmoid() * update.tanh() + child_memories
    return output_gate.sigmoid() * memory.tanh(), memory
