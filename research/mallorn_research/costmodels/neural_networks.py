"""Neural cost models: TLP (primitives), PaCM (statements), GNN and Tree-LSTM (loops)."""

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from mallorn.costmodels.views import LOOPS, PRIMITIVES, STATEMENTS
from mallorn_research.costmodels.standardize_inputs import PARENT, QUANTILES, depths_of, parents_of, row_width
from mallorn_research.costmodels.torch_model import (
    FAR,
    Layers,
    Neural,
    Tensors,
    attention,
    dense,
    head_scores,
    make_dense_layer,
    masked_mean,
    normal,
)

if TYPE_CHECKING:
    from torch import Tensor


WIDTH: Final = 32
HEADS: Final = 4


class TLP(Neural):
    """Embeds schedule primitives and positions, applies self-attention, scores the mean."""

    KIND: ClassVar[str] = "tlp"
    view: ClassVar[str] = PRIMITIVES.name

    @classmethod
    def initial(cls, rng: np.random.Generator, heads: int) -> Layers:
        return {
            "places": rng.normal(0, 0.3, (PRIMITIVES.shape[0], WIDTH)).astype(np.float32),
            **make_dense_layer(rng, "in", row_width(PRIMITIVES), WIDTH),
            **make_dense_layer(rng, "look", WIDTH, 3 * WIDTH, gain=0.7),
            **make_dense_layer(rng, "seen", WIDTH, WIDTH, gain=0.5),
            **make_dense_layer(rng, "up", WIDTH, 2 * WIDTH),
            **make_dense_layer(rng, "down", 2 * WIDTH, WIDTH, gain=0.5),
            **make_dense_layer(rng, "hidden", WIDTH, WIDTH),
            **make_dense_layer(rng, "out", WIDTH, heads, gain=0.1),
        }

    @staticmethod
    def scores(layers: Tensors, table: "Tensor", heads: "Tensor") -> "Tensor":
        present = table[:, :, 0]
        lines = dense(layers, "in", table).relu() + layers["places"][: table.shape[1]]
        lines = lines + dense(layers, "seen", attention(layers, normal(lines), present, HEADS))
        lines = lines + dense(layers, "down", dense(layers, "up", normal(lines)).relu())
        return head_scores(layers, masked_mean(lines, present), heads)


LINES, NUMBERS = STATEMENTS.shape
# MetaSchedule's statement features: arithmetic and loops, then 18 for each of 5 buffers.
FIRST_BUFFER: Final = 1 + 57
BUFFERS: Final = slice(FIRST_BUFFER, FIRST_BUFFER + 5 * 18)
SEEN: Final = len(range(NUMBERS)[BUFFERS])  # features of a statement's reads and writes
PARTS: Final = 1 + len(QUANTILES)  # the features themselves, and their excess over each quantile


class PaCM(Neural):
    """Sums up a cost per statement, and applies self-attention to the statements' data flow.

    The first branch reads all features of a statement. The second reads the features of its
    reads and writes (bytes, cache lines, reuse), in program order.

    Pruner (ASPLOS'25) differs: its second branch reads buffers and tiling patterns, its
    layers are wider, and its loss is LambdaRank. Here it is mostly squared error.
    """

    KIND: ClassVar[str] = "pacm"
    view: ClassVar[str] = STATEMENTS.name

    @classmethod
    def initial(cls, rng: np.random.Generator, heads: int) -> Layers:
        return {
            **make_dense_layer(rng, "in", row_width(STATEMENTS), WIDTH),
            **make_dense_layer(rng, "cost", WIDTH, WIDTH),
            "places": rng.normal(0, 0.3, (LINES, WIDTH)).astype(np.float32),
            **make_dense_layer(rng, "flow", PARTS * SEEN, WIDTH),
            **make_dense_layer(rng, "look", WIDTH, 3 * WIDTH, gain=0.7),
            **make_dense_layer(rng, "seen", WIDTH, WIDTH, gain=0.5),
            **make_dense_layer(rng, "hidden", 2 * WIDTH, WIDTH),
            **make_dense_layer(rng, "out", WIDTH, heads, gain=0.1),
        }

    @staticmethod
    def scores(layers: Tensors, table: "Tensor", heads: "Tensor") -> "Tensor":
        import torch

        present = table[:, :, 0]
        costs = dense(layers, "cost", dense(layers, "in", table).relu()).relu()
        # The data flow between statements, averaged over statements.
        rows, count, _ = table.shape
        data = table.reshape(rows, count, PARTS, NUMBERS)[:, :, :, BUFFERS].reshape(rows, count, PARTS * SEEN)
        lines = dense(layers, "flow", data).relu() + layers["places"][:count]
        lines = lines + dense(layers, "seen", attention(layers, normal(lines), present, HEADS))
        branches = torch.cat([(costs * present[:, :, None]).sum(1), masked_mean(lines, present)], dim=1)
        return head_scores(layers, branches, heads)


ROUNDS: Final = 3


class GNN(Neural):
    """A graph network on the loop tree: 3 message rounds, then attention and max pooling."""

    KIND: ClassVar[str] = "gnn"
    view: ClassVar[str] = LOOPS.name
    KEPT: ClassVar[int] = 2

    @classmethod
    def initial(cls, rng: np.random.Generator, heads: int) -> Layers:
        layers = make_dense_layer(rng, "in", row_width(LOOPS), WIDTH)
        for index in range(ROUNDS):
            layers |= make_dense_layer(rng, f"round{index}", 3 * WIDTH, WIDTH, gain=0.5)
        layers |= make_dense_layer(rng, "weight", WIDTH, WIDTH)
        layers |= make_dense_layer(rng, "hidden", 2 * WIDTH, WIDTH)
        return layers | make_dense_layer(rng, "out", WIDTH, heads, gain=0.1)

    @staticmethod
    def scores(layers: Tensors, table: "Tensor", heads: "Tensor") -> "Tensor":
        import torch

        present, parents = table[:, :, 0], parents_of(table)
        is_node = present[:, :, None]
        features = table.clone()
        features[:, :, PARENT] = 0  # an address, not a feature
        nodes = dense(layers, "in", features).relu() * is_node
        for index in range(ROUNDS):
            parent, children = _messages(nodes, parents)
            update = dense(layers, f"round{index}", torch.cat([nodes, parent, children], dim=-1)).relu()
            nodes = (nodes + update) * is_node
        weight = dense(layers, "weight", nodes).masked_fill(is_node == 0, FAR).softmax(1)
        pooled = torch.cat([(weight * nodes).sum(1), nodes.amax(1)], dim=-1)
        return head_scores(layers, pooled, heads)


def _messages(nodes: "Tensor", parents: "Tensor") -> tuple["Tensor", "Tensor"]:
    """Return, for each node, its parent's state and the mean state of its children.

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


class TreeLSTM(Neural):
    """A child-sum Tree-LSTM that processes all nodes of a level at once.

    An additional last node, the parent of all roots, represents the entire program.
    """

    KIND: ClassVar[str] = "tree-lstm"
    view: ClassVar[str] = LOOPS.name
    KEPT: ClassVar[int] = 2

    @classmethod
    def initial(cls, rng: np.random.Generator, heads: int) -> Layers:
        layers = make_dense_layer(rng, "read", row_width(LOOPS), WIDTH)
        layers |= make_dense_layer(rng, "in", WIDTH, 4 * WIDTH, gain=0.7)
        layers["in.offsets"][3 * WIDTH :] = 1.0  # start with open forget gates
        layers |= make_dense_layer(rng, "within", WIDTH, 3 * WIDTH, gain=0.5)
        layers |= make_dense_layer(rng, "forget", WIDTH, WIDTH, gain=0.5)
        layers |= make_dense_layer(rng, "hidden", WIDTH, WIDTH)
        return layers | make_dense_layer(rng, "out", WIDTH, heads, gain=0.1)

    @staticmethod
    def scores(layers: Tensors, table: "Tensor", heads: "Tensor") -> "Tensor":
        import torch

        rows, lines, _ = table.shape
        parents = parents_of(table)
        first = torch.arange(rows)[:, None] * (lines + 1)
        parent = torch.cat([parents + first, first + lines], dim=1).flatten()
        level = torch.cat([depths_of(parents) + 1, torch.zeros_like(first)], dim=1)
        level[:, :lines].masked_fill_(table[:, :, 0] == 0, -1)
        features = table.clone()
        features[:, :, PARENT] = 0  # an address, not a feature
        inputs = table.new_zeros(rows, lines + 1, WIDTH)  # zero for the last node, which has no line
        inputs[:, :-1] = dense(layers, "read", features).relu()
        gates = dense(layers, "in", inputs).flatten(0, 1)
        states, memories = (gates.new_zeros(len(gates), WIDTH) for _ in range(2))
        for depth in range(int(level.max()), 0, -1):
            nodes = (level.flatten() == depth).nonzero()[:, 0]
            state, memory = _cell(layers, gates[nodes], states[nodes], memories[nodes])
            node_parents = parent[nodes]
            forget_gates = (gates[node_parents, 3 * WIDTH :] + dense(layers, "forget", state)).sigmoid()
            states = states.index_add(0, node_parents, state)
            memories = memories.index_add(0, node_parents, forget_gates * memory)
        last = (first + lines)[:, 0]
        program, _ = _cell(layers, gates[last], states[last], memories[last])
        return head_scores(layers, program, heads)


def _cell(
    layers: Tensors, gates: "Tensor", child_states: "Tensor", child_memories: "Tensor"
) -> tuple["Tensor", "Tensor"]:
    raw_gates = gates[:, : 3 * WIDTH] + dense(layers, "within", child_states)
    input_gate, output_gate, update = raw_gates.chunk(3, dim=1)
    memory = input_gate.sigmoid() * update.tanh() + child_memories
    return output_gate.sigmoid() * memory.tanh(), memory
