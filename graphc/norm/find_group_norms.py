"""Replace group and instance norms of images by one operator before layouts change.

TVM's importer writes these norms as mean, variance and reshapes to groups. After a layout
change, transposes around the reshapes would hide the norms from later passes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import sizes_of

RESHAPE = "relax.reshape"
NO_NORM = "the division is not by the standard deviation of the data minus their mean"


@dataclass(frozen=True)
class GroupNorm:
    """A norm's input, number of groups and epsilon; other operators scale and shift it."""

    data: Any
    groups: int
    epsilon: float


class FindGroupNorms(Pass[GroupNorm]):
    """Replaces group norms written as several operators by one, if channels fill vectors."""

    name, match = "find_group_norms", (RESHAPE, "relax.divide")
    forward = True  # skip a norm's reshaped data, which looks like another norm's

    def check(self, call: Any, g: Graph) -> GroupNorm:
        if call.ty.ndim <= 2 or int(call.ty.shape[1]) % g.lanes:
            raise Leave("the result is not an image whose channels fill vectors")
        if operator_name(call) == RESHAPE:
            value = call.args[0]  # skip multiplications by 1 and additions of 0
            for operator, unit in (("relax.add", 0), ("relax.multiply", 1)):
                neutral = g.producer(value, operator)
                if neutral is not None and g.is_constant(neutral.args[1]):
                    if np.any(g.array(neutral.args[1]) != unit):
                        raise Leave("the norm was scaled or shifted before the reshape")
                    value = neutral.args[0]
            normed = _normed(g, g.producer(value, "relax.divide"))
            source = g.producer(normed.data, RESHAPE)
            if source is None:
                raise Leave("no reshape computes the input of the norm")
            rows, sizes = sizes_of(source), sizes_of(call)
            is_grouped = sizes_of(source.args[0]) == sizes and len(rows) == 3 and rows[0] == sizes[0]
            if not is_grouped or sizes[1] % rows[1]:
                raise Leave("the rows of the norm are not groups of channels")
            return GroupNorm(source.args[0], rows[1], normed.epsilon)
        normed = _normed(g, call)
        if g.producer(normed.data, RESHAPE) is not None:
            raise Leave("the data of the norm was reshaped before")
        return normed

    def rewrite(self, call: Any, facts: GroupNorm, g: Graph) -> Any:
        channels, axes = int(call.ty.shape[1]), list(range(2, call.ty.ndim))
        gain, offset = (relax.const(np.full(channels, value, "float32")) for value in (1, 0))
        return relax.op.nn.group_norm(facts.data, gain, offset, facts.groups, 1, axes, facts.epsilon)


def _normed(g: Graph, quotient: Any | None) -> GroupNorm:
    """Return the norm that ends in this division, one group per channel. Raises Leave."""
    if quotient is None:
        raise Leave(NO_NORM)
    difference = g.producer(quotient.args[0], "relax.subtract")
    root = g.producer(quotient.args[1], "relax.sqrt")
    total = None if root is None else g.producer(root.args[0], "relax.add")
    if difference is None or total is None or not g.is_constant(total.args[1]):
        raise Leave(NO_NORM)
    data, epsilon = difference.args[0], g.array(total.args[1])
    mean = g.producer(difference.args[1], "relax.mean")
    variance = g.producer(total.args[0], "relax.variance")
    if epsilon.ndim:
        raise Leave(NO_NORM)
    for reduction in (mean, variance):  # both over all but the first two axes, which stay
        if reduction is None or not reduction.args[0].same_as(data) or not reduction.attrs.keepdims:
            raise Leave(NO_NORM)
        axes = [int(axis) % data.ty.ndim for axis in reduction.attrs.axis or ()]
        if axes != list(range(2, data.ty.ndim)):
            raise Leave(NO_NORM)
    return GroupNorm(data, int(quotient.ty.shape[1]), epsilon.item())
