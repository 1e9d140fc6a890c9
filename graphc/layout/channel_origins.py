"""Where the channels of a value come from: through parts, slices and shuffles back to what computed them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np
from tvm import relax

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_rewriting import known, permutation, sizes_of

Origin = tuple[Any, int]  # a variable, and a channel of it
Places = tuple[Any, Sequence[int]]  # what is taken from, and which channels; none where channels are computed
CHANNELS = 1  # the axis: networks are still as ONNX has them
_SLICE, _SPLIT = "relax.strided_slice", "relax.split"
_RESHAPE, _TRANSPOSE = "relax.reshape", "relax.permute_dims"


@dataclass(frozen=True)
class Origins:
    """The origin of each channel of a value, and whether a shuffle is on the way there."""

    channels: list[Origin]
    shuffled: bool = False

    def taken(self, places: Sequence[int], shuffled: bool) -> "Origins":
        """Those of some channels in turn."""
        return Origins([self.channels[place] for place in places], self.shuffled or shuffled)


def origins(value: Any, g: Graph) -> Origins:
    """Where the channels of a value come from."""
    call = g.bound(value)
    if isinstance(call, relax.TupleGetItem):
        return _of_part(call, g) or _own(value)
    if not isinstance(call, relax.Call) or not known(call):
        return _own(value)
    if operator_name(call) == "relax.concat" and call.attrs.axis == CHANNELS:
        parts = [origins(part, g) for part in g.tuple_fields(call.args[0])]
        return Origins([each for part in parts for each in part.channels], any(p.shuffled for p in parts))
    source, places = _places(call, g)
    return origins(source, g).taken(places, operator_name(call) != _SLICE) if places else _own(value)


def runs(found: Sequence[Origin]) -> list[tuple[Any, int, int]]:
    """Channels that lie beside each other in one variable: the first, and behind the last."""
    joined: list[tuple[Any, int, int]] = []
    for source, channel in found:
        last = joined[-1] if joined else None
        if last is not None and last[0].same_as(source) and last[2] == channel:
            joined[-1] = (source, last[1], channel + 1)
        else:
            joined.append((source, channel, channel + 1))
    return joined


def gathered(found: Sequence[Origin]) -> Any:
    """What puts channels beside each other, run by run."""
    parts = []
    for source, first, end in runs(found):
        whole = (first, end) == (0, sizes_of(source)[CHANNELS])
        parts.append(source if whole else relax.op.strided_slice(source, [CHANNELS], [first], [end]))
    return relax.op.concat(parts, CHANNELS) if len(parts) > 1 else parts[0]


def _own(value: Any) -> Origins:
    return Origins([(value, channel) for channel in range(sizes_of(value)[CHANNELS])])


def _of_part(part: Any, g: Graph) -> Origins | None:
    """Those of a part that a split makes; none of other tuples."""
    split = g.producer(part.tuple_value, _SPLIT)
    if split is None or not known(split) or int(split.attrs.axis) != CHANNELS:
        return None
    sizes = [int(field.shape[CHANNELS]) for field in split.ty.fields]
    first = sum(sizes[: part.index])
    return origins(split.args[0], g).taken(range(first, first + sizes[part.index]), shuffled=False)


def _places(call: Any, g: Graph) -> Places:
    name = operator_name(call)
    if name == _SLICE:
        source, axes, *limits = call.args
        if list(map(int, axes.fields)) != [CHANNELS] or len(limits) != 2:
            return None, ()
        first, end = (int(limit.fields[0]) for limit in limits)
        return source, range(sizes_of(source)[CHANNELS])[first:end]
    if name == "relax.take" and call.attrs.axis == CHANNELS and g.is_constant(call.args[1]):
        return call.args[0], g.array(call.args[1]).ravel().tolist()
    return _turned(call, g) if name == _RESHAPE else (None, ())


def _turned(call: Any, g: Graph) -> Places:
    """Of a reshape, a transpose and a reshape that move whole channels."""
    transpose = g.producer(call.args[0], _TRANSPOSE)
    opened = g.producer(transpose.args[0], _RESHAPE) if transpose is not None else None
    if opened is None or not known(opened) or sizes_of(opened.args[0]) != sizes_of(call):
        return None, ()
    batch, channels, *image = sizes_of(call)
    sizes, axes = sizes_of(opened), permutation(transpose)
    before, behind = _filled(sizes, batch), _filled(sizes[::-1], prod(image))
    if before is None or behind is None:
        return None, ()
    kept, end = list(range(len(sizes))), len(sizes) - behind
    if (*kept[:before], *kept[end:]) != (*axes[:before], *axes[end:]):
        return None, ()
    moved = [axis - before for axis in axes[before:end]]
    places = np.arange(channels).reshape(sizes[before:end]).transpose(moved)
    return opened.args[0], places.ravel().tolist()


def _filled(sizes: Sequence[int], numbers: int) -> int | None:
    """How many of the first axes hold so many numbers."""
    products = list(accumulate(sizes, mul, initial=1))
    return products.index(numbers) if numbers in products else None
