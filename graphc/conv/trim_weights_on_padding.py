"""Remove weights of convolutions that are only ever multiplied by padding.

For example, of 3 x 3 taps at dilation 24, only the middle one reads a 14 x 14 image.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import copy_convolution, sizes_of

LAYOUTS = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}


@dataclass(frozen=True)
class PaddedAxis:
    """A spatial dimension of a convolution: size of the data, weights along it, padding."""

    size: int
    taps: int
    dilation: int
    low_padding: int
    high_padding: int
    last: int  # index that the first tap reads at the last result

    @property
    def trimmed(self) -> "PaddedAxis":
        """The axis without outer weights that read only padding; itself if none do."""
        reach = [
            tap
            for tap in range(self.taps)
            if self.last + tap * self.dilation >= self.low_padding
            and tap * self.dilation < self.low_padding + self.size
        ]
        if not reach:
            return self
        low_padding = self.low_padding - reach[0] * self.dilation
        high_padding = self.high_padding - (self.taps - 1 - reach[-1]) * self.dilation
        if min(low_padding, high_padding) < 0:
            return self
        taps = reach[-1] - reach[0] + 1
        return PaddedAxis(self.size, taps, self.dilation, low_padding, high_padding, self.last)


class TrimWeightsOnPadding(Pass[list[PaddedAxis]]):
    """Removes weights of convolutions that are only ever multiplied by padding."""

    name, match = "trim_weights_on_padding", tuple(LAYOUTS)
    dtype = ""
    after = ("prepare_convert_layout",)  # that pass folds pads into convolutions

    def check(self, call: Any, g: Graph) -> list[PaddedAxis]:
        if (call.attrs.data_layout, call.attrs.kernel_layout) != LAYOUTS[call.op.name]:
            raise Leave("the layout of the convolution is not ONNX's (channels first)")
        if not g.is_constant(call.args[1]):
            raise Leave("the weights of the convolution are computed")
        sizes, kernel, result = (sizes_of(value)[2:] for value in (*call.args, call))
        padding, count = [*map(int, call.attrs.padding)], len(result)
        strides, dilation = ([*map(int, numbers)] for numbers in (call.attrs.strides, call.attrs.dilation))
        axes = [
            PaddedAxis(
                size=sizes[dim],
                taps=kernel[dim],
                dilation=dilation[dim],
                low_padding=padding[dim],
                high_padding=padding[count + dim],
                last=(result[dim] - 1) * strides[dim],
            )
            for dim in range(count)
        ]
        if all(axis.trimmed == axis for axis in axes):
            raise Leave("no weight is multiplied with padding only")
        return axes

    def rewrite(self, call: Any, facts: list[PaddedAxis], g: Graph) -> Any:
        axes = [axis.trimmed for axis in facts]
        pairs = zip(facts, axes, strict=True)
        begins = [(old.low_padding - new.low_padding) // old.dilation for old, new in pairs]
        places = (slice(low, low + axis.taps) for low, axis in zip(begins, axes, strict=True))
        return copy_convolution(
            call,
            call.args[0],
            g.constant(np.ascontiguousarray(g.array(call.args[1])[(..., *places)])),
            padding=[*(axis.low_padding for axis in axes), *(axis.high_padding for axis in axes)],
            dilation=[axis.dilation if axis.taps > 1 else 1 for axis in axes],
        )
