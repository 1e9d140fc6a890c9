"""Remove weights of convolutions that are only ever multiplied by padding.

Taps of wide dilation miss a small image: of 9 taps at dilation 24, one reads 14 x 14 pixels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.core.graph import Graph
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import convolution, sizes_of
from graphc.core.reporting_pass import Leave

LAYOUTS = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}


@dataclass(frozen=True)
class PaddedAxis:
    """One spatial dimension of the data, and the kernel's taps and padding along it."""

    size: int
    taps: int
    dilation: int
    before: int
    after: int
    last: int  # index that the first tap reads at the last result

    @property
    def kept(self) -> "PaddedAxis":
        """The axis with only the taps between the first and last that read data."""
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
        if min(before, after) < 0:
            return self
        taps = reach[-1] - reach[0] + 1
        return PaddedAxis(self.size, taps, self.dilation, before, after, self.last)


class TrimWeightsOnPadding(Pass[list[PaddedAxis]]):
    """Removes weights of convolutions that are only ever multiplied by padding."""

    name, match = "conv.trim_on_padding", tuple(LAYOUTS)
    dtype = ""
    after = ("layout.prepare_convert_layout",)  # that pass folds pads into convolutions

    def check(self, call: Any, g: Graph) -> list[PaddedAxis]:
        if (call.attrs.data_layout, call.attrs.kernel_layout) != LAYOUTS[call.op.name]:
            raise Leave("its layout is not ONNX's")
        if not g.is_constant(call.args[1]):
            raise Leave("its weights are computed")
        sizes, kernel, result = (sizes_of(value)[2:] for value in (*call.args, call))
        padding, count = [*map(int, call.attrs.padding)], len(result)
        strides, dilation = ([*map(int, each)] for each in (call.attrs.strides, call.attrs.dilation))
        axes = [
            PaddedAxis(
                sizes[at],
                kernel[at],
                dilation[at],
                padding[at],
                padding[count + at],
                (result[at] - 1) * strides[at],
            )
            for at in range(count)
        ]
        if all(axis.kept == axis for axis in axes):
            raise Leave("its weights reach the data")
        return axes

    def rewrite(self, call: Any, facts: list[PaddedAxis], g: Graph) -> Any:
        trimmed = [axis.kept for axis in facts]
        pairs = zip(facts, trimmed, strict=True)
        begins = [(old.before - new.before) // old.dilation for old, new in pairs]
        places = (slice(low, low + axis.taps) for low, axis in zip(begins, trimmed, strict=True))
        weights = g.array(call.args[1])
        return convolution(
            call,
            call.args[0],
            g.constant(np.ascontiguousarray(weights[(..., *places)])),
            padding=[*(axis.before for axis in trimmed), *(axis.after for axis in trimmed)],
            dilation=[axis.dilation if axis.taps > 1 else 1 for axis in trimmed],
        )
