"""Sizes of a transposed convolution, as interleaved images and as sums of products."""

from dataclasses import dataclass
from typing import Any

import numpy as np

# Roughly the operations that a processor computes while one number is written and read again.
OPERATIONS_A_NUMBER = 40


@dataclass(frozen=True)
class StridedAxis:
    """One dimension of the images, and how the kernel moves along it."""

    size: int
    kernel: int
    stride: int
    cut: int  # from the beginning of the result
    result: int

    @property
    def taps(self) -> int:
        """How many inputs a result needs, at most."""
        return -(-self.kernel // self.stride)

    @property
    def steps(self) -> int:
        """Results of one interleaved image."""
        return -(-self.result // self.stride)

    @property
    def margins(self) -> tuple[int, int]:
        """Zeros needed around the inputs."""
        last = self.steps - 1 + (self.stride - 1 + self.cut) // self.stride
        return max(0, self.taps - 1 - self.cut // self.stride), max(0, last - self.size + 1)

    @property
    def padded(self) -> int:
        return self.size + sum(self.margins)

    @property
    def first(self) -> int:
        """The padded input that the last tap reads where nothing is cut off."""
        return self.margins[0] - self.taps + 1

    @property
    def waste(self) -> float:
        """Multiplications over those of the weights alone."""
        return self.taps * self.stride / self.kernel

    def weights(self, kernels: Any, axis: int) -> Any:
        """The weights of each interleaved image, in the order of the inputs, in place of an axis."""
        wanted = [[(image + self.cut) % self.stride + self.stride * tap for tap in reversed(range(self.taps))]
                  for image in range(self.stride)]  # fmt: skip
        margins = [(0, 0)] * kernels.ndim
        margins[axis] = (0, self.taps * self.stride - self.kernel)
        return np.take(np.pad(kernels, margins), wanted, axis=axis)


@dataclass(frozen=True)
class Deconvolution:
    """A transposed convolution, channels last."""

    batch: int
    inputs: int
    outputs: int
    groups: int
    high: StridedAxis
    wide: StridedAxis

    @property
    def data(self) -> tuple[int, ...]:
        return self.batch, self.high.padded, self.wide.padded, self.inputs

    @property
    def result(self) -> tuple[int, ...]:
        return self.batch, self.high.result, self.wide.result, self.outputs

    @property
    def images(self) -> tuple[int, ...]:
        """The interleaved images, whose steps and strides take turns."""
        high, wide = self.high, self.wide
        return self.batch, high.steps, high.stride, wide.steps, wide.stride, self.outputs

    @property
    def margins(self) -> tuple[int, ...]:
        """Zeros around the inputs of a convolution that has no strides; negative where data are cut off."""
        axes = self.high, self.wide
        before = (axis.kernel - 1 - axis.cut for axis in axes)
        return *before, *(axis.result + axis.cut - axis.size for axis in axes)

    @property
    def strided(self) -> bool:
        return max(self.high.stride, self.wide.stride) > 1

    @property
    def whole(self) -> bool:
        """True if all interleaved images are of one size."""
        return not self.high.result % self.high.stride and not self.wide.result % self.wide.stride

    def interleaves(self, lanes: int) -> bool:
        """True if the images fill vectors, and multiplying by zeros costs less than another tensor."""
        waste = self.high.waste * self.wide.waste
        cheap = self.outputs % lanes == 0 and waste <= 1 + OPERATIONS_A_NUMBER / self.inputs
        return self.strided and self.whole and (self.groups > 1 or cheap)
