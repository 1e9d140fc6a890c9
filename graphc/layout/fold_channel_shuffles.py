"""Shuffles of channels, folded into the weights of what reads them.

A channel shuffle, and halves of one, are channels in another order. A convolution sums over all of them: with
its weights in the order in which they lie anyway, nothing is moved. What keeps channels apart, such as a
depthwise convolution, works on them as they lie, and leaves the order to what reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import sizes_of
from graphc.core.reporting_pass import Leave
from graphc.layout.channel_origins import CHANNELS, Origin, gathered, origins, runs

_CONVOLUTIONS = {"relax.nn.conv1d": ("NCW", "OIW"), "relax.nn.conv2d": ("NCHW", "OIHW")}
_UNARY = ("exp", "nn.leakyrelu", "nn.relu", "nn.silu", "sigmoid", "tanh")
_POOLS = ("nn.avg_pool2d", "nn.max_pool2d", "nn.adaptive_avg_pool2d")
_BINARY = ("add", "divide", "maximum", "minimum", "multiply", "subtract")
_BY_CHANNEL = tuple(f"relax.{name}" for name in (*_UNARY, *_POOLS, *_BINARY))
MOST_RUNS = 32  # of channels to copy: more of them are long programs that move little at once


@dataclass(frozen=True)
class Shuffled:
    """What a call reads: the origins of its channels in memory's order, and their places in the call's."""

    channels: list[Origin]
    order: list[int]  # of the call's channels, to be in memory's order
    sums: bool  # over all channels, so that no order is left


class FoldChannelShuffles(Pass[Shuffled]):
    """Lets convolutions read shuffled channels as they lie, with weights in that order."""

    name, match = "layout.fold_channel_shuffles", (*_CONVOLUTIONS, *_BY_CHANNEL)
    after, forward = ("layout.prepare_convert_layout",), True

    def check(self, call: Any, g: Graph) -> Shuffled:
        data = call.args[0]
        if not isinstance(data, relax.Var) or not CHANNELS + 1 < data.ty.ndim == call.ty.ndim:
            raise Leave("it is of no image")
        source = origins(data, g)
        if not source.shuffled:
            raise Leave("no shuffle is before it")
        found = source.channels
        order = _memory_order(found)
        channels = [found[place] for place in order]
        if len(set(found)) < len(found) or len(runs(channels)) > MOST_RUNS:
            raise Leave("its channels lie apart, or some of them twice")
        return Shuffled(channels, order, _sums(call, g))

    def rewrite(self, call: Any, facts: Shuffled, g: Graph) -> Any:
        data = gathered(facts.channels)
        constants = [_reordered(call, value, facts, g) for value in call.args[1:]]
        result = relax.Call(call.op, [data, *constants], call.attrs)
        if facts.sums:
            return result
        return relax.op.take(result, relax.const(np.argsort(facts.order)), CHANNELS)


def _memory_order(found: Sequence[Origin]) -> list[int]:
    """Places of channels: variables in the order in which they are met, and in each as they lie."""
    met: dict[Any, int] = {}
    for source, _ in found:
        met.setdefault(source, len(met))
    return sorted(range(len(found)), key=lambda place: (met[found[place][0]], found[place][1]))


def _sums(call: Any, g: Graph) -> bool:
    """True for a sum over all channels, False for what keeps them apart."""
    if operator_name(call) not in _CONVOLUTIONS:
        if not all(g.is_constant(value) for value in call.args[1:]):
            raise Leave("its other operand is computed")
        return False
    layouts = call.attrs.data_layout, call.attrs.kernel_layout
    if layouts != _CONVOLUTIONS[operator_name(call)] or not g.is_constant(call.args[1]):
        raise Leave("its layout is not ONNX's, or its weights are computed")
    groups, outputs = int(call.attrs.groups), sizes_of(call)[CHANNELS]
    if groups > 1 and not groups == outputs == sizes_of(call.args[0])[CHANNELS]:
        raise Leave("its groups sum over parts of the channels")
    return groups == 1


def _reordered(call: Any, value: Any, facts: Shuffled, g: Graph) -> Any:
    """A constant with its channels in memory's order."""
    values = g.array(value)
    if operator_name(call) in _CONVOLUTIONS:
        axis = CHANNELS if facts.sums else 0
    else:
        axis = CHANNELS - (call.ty.ndim - values.ndim)  # as operands of fewer axes meet
    if axis < 0 or values.shape[axis] == 1:
        return value
    return relax.const(np.take(values, facts.order, axis))
