"""Convolutions without the weights that only ever meet padding.

Those of a wide dilation reach beyond a small image: of nine taps that lie 24 apart, one is left on 14 x 14.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from graphc.core import graph_rewriting

LAYOUTS = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}


@dataclass(frozen=True)
class Axis:
    """One dimension of the images, and how the kernel lies on it."""

    size: int
    taps: int
    dilation: int
    before: int
    after: int
    last: int  # where the first tap is, at the last result

    @property
    def kept(self) -> "Axis":
        """With the taps from the first to the last one that reach the data, and padding for those."""
        reach = [
            tap
            for tap in range(self.taps)
            if self.last + tap * self.dilation >= self.before
            and tap * self.dilation < self.before + self.size
        ]
        if not reach:
            return self
        before = self.before - reach[0] * self.dilation
        after = self.after - (self.taps - 1 - reach[-1]) * self.dilation
        taps = reach[-1] - reach[0] + 1
        return (
            self if min(before, after) < 0 else Axis(self.size, taps, self.dilation, before, after, self.last)
        )


def reached() -> Any:
    """The pass, for convolutions with constant weights in ONNX's layout."""
    return graph_rewriting.call_pass("Reached", dict.fromkeys(LAYOUTS, _cut))


def _cut(_: Any, call: Any) -> Any:
    attrs, (data, weights) = call.attrs, call.args
    plain = (attrs.data_layout, attrs.kernel_layout) == LAYOUTS[call.op.name]
    if not plain or not isinstance(weights, tvm.ir.GenericConst):
        return call
    axes = _axes(call)
    kept = [axis.kept for axis in axes]
    if kept == axes:
        return call
    begins = [(old.before - new.before) // old.dilation for old, new in zip(axes, kept, strict=True)]
    places = (slice(low, low + axis.taps) for low, axis in zip(begins, kept, strict=True))
    values = np.ascontiguousarray(weights.value.numpy()[(..., *places)])
    return graph_rewriting.convolution(
        call,
        data,
        relax.const(values),
        padding=[*(axis.before for axis in kept), *(axis.after for axis in kept)],
        dilation=[axis.dilation if axis.taps > 1 else 1 for axis in kept],
    )


def _axes(call: Any) -> list[Axis]:
    sizes, kernel, result = (graph_rewriting.sizes_of(value)[2:] for value in (*call.args, call))
    padding, count = [*map(int, call.attrs.padding)], len(result)
    strides, dilation = ([*map(int, each)] for each in (call.attrs.strides, call.attrs.dilation))
    return [
        Axis(
            sizes[at],
            kernel[at],
            dilation[at],
            padding[at],
            padding[count + at],
            (result[at] - 1) * strides[at],
        )
        for at in range(count)
    ]
