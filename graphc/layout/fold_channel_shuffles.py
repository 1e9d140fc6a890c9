"""Fold channel shuffles into the weights of the operators that read them.

A channel shuffle, or a half of one, only permutes channels. A convolution sums over all
channels, so permuting its weights instead moves no data. An operator that treats channels
separately, such as a depthwise convolution, runs in memory order; its result is permuted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import has_known_sizes, permutation, sizes_of

Origin = tuple[Any, int]  # a variable, and one of its channels
Places = tuple[Any, Sequence[int]]  # a tensor and its channels; (None, ()) if they are computed
CHANNELS = 1  # the channel axis: the layout is still ONNX's
_SLICE, _SPLIT = "relax.strided_slice", "relax.split"
_RESHAPE, _TRANSPOSE = "relax.reshape", "relax.permute_dims"


@dataclass(frozen=True)
class Origins:
    """Tensor and channel that each channel of a value comes from, and whether shuffled."""

    channels: list[Origin]
    is_shuffled: bool = False

    def taken(self, places: Sequence[int], is_shuffled: bool) -> "Origins":
        return Origins([self.channels[place] for place in places], self.is_shuffled or is_shuffled)


def trace_channel_origins(value: Any, g: Graph) -> Origins:
    """Trace a value's channels back through slices, splits, concatenations and shuffles."""
    call = g.bound_expression(value)
    if isinstance(call, relax.TupleGetItem):
        split = g.producer(call.tuple_value, _SPLIT)
        if split is None or not has_known_sizes(split) or int(split.attrs.axis) != CHANNELS:
            return _identity_origins(value)
        sizes = [int(field.shape[CHANNELS]) for field in split.ty.fields]
        first = sum(sizes[: call.index])
        return trace_channel_origins(split.args[0], g).taken(
            range(first, first + sizes[call.index]), is_shuffled=False
        )
    if not isinstance(call, relax.Call) or not has_known_sizes(call):
        return _identity_origins(value)
    if operator_name(call) == "relax.concat" and call.attrs.axis == CHANNELS:
        parts = [trace_channel_origins(part, g) for part in g.tuple_fields(call.args[0])]
        channels = [channel for part in parts for channel in part.channels]
        return Origins(channels, any(part.is_shuffled for part in parts))
    source, places = _copied_channels(call, g)
    return (
        trace_channel_origins(source, g).taken(places, operator_name(call) != _SLICE)
        if places
        else _identity_origins(value)
    )


def merge_channel_runs(channels: Sequence[Origin]) -> list[tuple[Any, int, int]]:
    """Merge consecutive channels of a tensor into tuples (tensor, first channel, end)."""
    result: list[tuple[Any, int, int]] = []
    for source, channel in channels:
        last = result[-1] if result else None
        if last is not None and last[0].same_as(source) and last[2] == channel:
            result[-1] = (source, last[1], channel + 1)
        else:
            result.append((source, channel, channel + 1))
    return result


def concat_runs(channels: Sequence[Origin]) -> Any:
    """Return an expression that joins these channels from slices of their tensors."""
    parts = []
    for source, first, end in merge_channel_runs(channels):
        is_all = (first, end) == (0, sizes_of(source)[CHANNELS])
        parts.append(source if is_all else relax.op.strided_slice(source, [CHANNELS], [first], [end]))
    return relax.op.concat(parts, CHANNELS) if len(parts) > 1 else parts[0]


def _identity_origins(value: Any) -> Origins:
    return Origins([(value, channel) for channel in range(sizes_of(value)[CHANNELS])])


def _copied_channels(call: Any, g: Graph) -> Places:
    """Return the tensor and channels a slice, take or shuffle copies, else (None, ())."""
    name = operator_name(call)
    if name == _SLICE:
        source, axes, *limits = call.args
        if list(map(int, axes.fields)) != [CHANNELS] or len(limits) != 2:
            return None, ()
        first, end = (int(limit.fields[0]) for limit in limits)
        return source, range(sizes_of(source)[CHANNELS])[first:end]
    if name == "relax.take" and call.attrs.axis == CHANNELS and g.is_constant(call.args[1]):
        return call.args[0], g.array(call.args[1]).ravel().tolist()
    if name != _RESHAPE:
        return None, ()

    # A shuffle consists of a reshape, a transpose and a reshape.
    transpose = g.producer(call.args[0], _TRANSPOSE)
    grouped = g.producer(transpose.args[0], _RESHAPE) if transpose is not None else None
    if grouped is None or not has_known_sizes(grouped) or sizes_of(grouped.args[0]) != sizes_of(call):
        return None, ()
    batch, channels, *image = sizes_of(call)
    sizes, axes = sizes_of(grouped), permutation(transpose)
    leading, trailing = _leading_axes(sizes, batch), _leading_axes(sizes[::-1], prod(image))
    if leading is None or trailing is None:
        return None, ()
    axis_order, end = list(range(len(sizes))), len(sizes) - trailing
    if (*axis_order[:leading], *axis_order[end:]) != (*axes[:leading], *axes[end:]):
        return None, ()
    order = [axis - leading for axis in axes[leading:end]]
    places = np.arange(channels).reshape(sizes[leading:end]).transpose(order)
    return grouped.args[0], places.ravel().tolist()


def _leading_axes(sizes: Sequence[int], numbers: int) -> int | None:
    """Return how many of the first sizes multiply to `numbers`; None if no count does."""
    products = list(accumulate(sizes, mul, initial=1))
    return products.index(numbers) if numbers in products else None


_CONVOLUTIONS = {"relax.nn.conv1d": ("NCW", "OIW"), "relax.nn.conv2d": ("NCHW", "OIHW")}
_UNARY = ("exp", "nn.leakyrelu", "nn.relu", "nn.silu", "sigmoid", "tanh")
_POOLS = ("nn.avg_pool2d", "nn.max_pool2d", "nn.adaptive_avg_pool2d")
_BINARY = ("add", "divide", "maximum", "minimum", "multiply", "subtract")
_BY_CHANNEL = tuple(f"relax.{name}" for name in (*_UNARY, *_POOLS, *_BINARY))
MOST_RUNS = 32  # to copy: more runs need long code that moves little data each


@dataclass(frozen=True)
class Shuffled:
    """Channels that a call reads, in memory order, and the permutation that sorts them."""

    channels: list[Origin]
    order: list[int]  # the call's channels, sorted in memory order
    sums: bool  # whether the call sums over all channels, so that its result has no order


class FoldChannelShuffles(Pass[Shuffled]):
    """Removes channel shuffles by permuting the weights of convolutions that read them."""

    name, match = "fold_channel_shuffles", (*_CONVOLUTIONS, *_BY_CHANNEL)
    after, forward = ("prepare_convert_layout",), True

    def check(self, call: Any, g: Graph) -> Shuffled:
        data = call.args[0]
        if not isinstance(data, relax.Var) or not CHANNELS + 1 < data.ty.ndim == call.ty.ndim:
            raise Leave("the input is not an image")
        source = trace_channel_origins(data, g)
        if not source.is_shuffled:
            raise Leave("no channel shuffle computes the input")
        channel_origins = source.channels
        # Sort channels by variable, in order of first use, and by channel.
        rank: dict[Any, int] = {}
        for variable, _ in channel_origins:
            rank.setdefault(variable, len(rank))
        order = sorted(
            range(len(channel_origins)),
            key=lambda place: (rank[channel_origins[place][0]], channel_origins[place][1]),
        )
        channels = [channel_origins[place] for place in order]
        if len(set(channel_origins)) < len(channel_origins) or len(merge_channel_runs(channels)) > MOST_RUNS:
            raise Leave("the shuffled channels form too many runs, or some occur twice")
        if operator_name(call) not in _CONVOLUTIONS:
            if not all(g.is_constant(value) for value in call.args[1:]):
                raise Leave("the other operand is computed")
            return Shuffled(channels, order, sums=False)
        layouts = call.attrs.data_layout, call.attrs.kernel_layout
        if layouts != _CONVOLUTIONS[operator_name(call)] or not g.is_constant(call.args[1]):
            raise Leave("the layout is not ONNX's, or the weights are computed")
        groups, outputs = int(call.attrs.groups), sizes_of(call)[CHANNELS]
        if groups > 1 and not groups == outputs == sizes_of(call.args[0])[CHANNELS]:
            raise Leave("the convolution has groups that sum over parts of the channels")
        return Shuffled(channels, order, sums=groups == 1)

    def rewrite(self, call: Any, facts: Shuffled, g: Graph) -> Any:
        data = concat_runs(facts.channels)
        constants = []  # with channels in memory order
        for value in call.args[1:]:
            values = g.array(value)
            if operator_name(call) in _CONVOLUTIONS:
                axis = CHANNELS if facts.sums else 0
            else:
                axis = CHANNELS - (call.ty.ndim - values.ndim)  # aligned at the last axis
            if axis >= 0 and values.shape[axis] != 1:
                value = g.constant(np.take(values, facts.order, axis))
            constants.append(value)
        result = relax.Call(call.op, [data, *constants], call.attrs)
        if facts.sums:
            return result
        return relax.op.take(result, relax.const(np.argsort(facts.order)), CHANNELS)
