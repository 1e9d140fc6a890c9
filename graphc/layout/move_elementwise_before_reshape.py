"""Move element-wise operators before reshapes of tensor functions' results, to fuse them."""

from math import prod
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import ELEMENTWISE, has_known_sizes, sizes_of

RESHAPE, FUNCTION = "relax.reshape", "relax.call_tir"


class MoveElementwiseBeforeReshape(Pass[tuple[Any, list[Any]]]):
    """Moves element-wise operators before the reshape of a tensor function's result."""

    name, match = "move_elementwise_before_reshape", ELEMENTWISE
    dtype, forward = "", True  # forward: whole chains of operators move
    after = ("split_conv_transpose_by_phase",)

    def check(self, call: Any, g: Graph) -> tuple[Any, list[Any]]:
        """Return what the reshape reads, and the other operands in the shape before it."""
        view = g.producer(call.args[0], RESHAPE)
        if view is None or not has_known_sizes(view):
            raise Leave("no reshape with known sizes computes the input")
        # The source axes that become the last axis: the last one, or groups and channels.
        sizes, last = sizes_of(view.args[0]), sizes_of(view)[-1:]
        ends = (sizes[-count:] for count in (1, 2))
        channels = next((end for end in ends if last == (prod(end),)), ())
        if not channels:
            raise Leave("the reshape does not keep or merge whole channels")
        if not _is_from_function(g, view.args[0]):
            raise Leave("no tensor function computes the input of the reshape")
        return view.args[0], [_operand(g, operand, view, channels) for operand in call.args[1:]]

    def rewrite(self, call: Any, facts: tuple[Any, list[Any]], g: Graph) -> Any:
        source, values = facts
        operands = (g.constant(value) if isinstance(value, np.ndarray) else value for value in values)
        return relax.op.reshape(relax.Call(call.op, [source, *operands], call.attrs), call.ty.shape)


def _is_from_function(g: Graph, value: Any) -> bool:
    """Return whether a tensor function, then only element-wise calls, compute the value."""
    if g.producer(value, FUNCTION) is not None:
        return True
    call = g.producer(value, *ELEMENTWISE)
    return call is not None and _is_from_function(g, call.args[0])


def _operand(g: Graph, operand: Any, view: Any, channels: tuple[int, ...]) -> Any:
    """Return an operand in the shape before the reshape; as an array if it is a vector.

    Raises Leave unless it is reshaped alike, or a constant that varies along the last axis.
    """
    operand_view = g.producer(operand, RESHAPE)
    if operand_view is not None and has_known_sizes(operand_view):
        reshapes = ((operand_view, view), (operand_view.args[0], view.args[0]))
        if all(sizes_of(left) == sizes_of(right) for left, right in reshapes):
            return operand_view.args[0]
    if not g.is_constant(operand):
        raise Leave("the other operand is computed, and is not reshaped in the same way")
    values = g.array(operand)
    if values.ndim == 0:
        return operand
    if values.size != values.shape[-1] or values.size not in (1, prod(channels)):
        raise Leave("the other operand is neither a number nor a value per channel")
    return values.reshape(channels if values.size > 1 else (1,))
