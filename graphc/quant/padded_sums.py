"""Express products and convolutions as sums over contiguous data, as instructions read it."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave
from mallorn.graphc.core.graph_rewriting import is_worth_padding, sizes_of
from mallorn.graphc.quant import dot_product_function, tile_function
from mallorn.graphc.quant.dot_product_function import DotInstruction, Sums

FROM_PLANES = (0, 2, 3, 1)  # the transpose from channels first to channels last


@dataclass(frozen=True)
class PaddedSums:
    """A product over padded data; its weights are zero where data was added."""

    margins: tuple[int, ...]  # before and after each axis
    weights: Any  # shape [..., inputs, outputs]
    sums: Sums

    def pad(self, data: Any, pad_value: int = 0) -> Any:
        """Return the data padded with `pad_value`, in the shape that the product reads."""
        if any(self.margins):
            data = relax.op.nn.pad(data, self.margins, pad_value=pad_value)
        is_flat = len(self.sums.data) != len(self.margins) // 2
        return relax.op.reshape(data, self.sums.data) if is_flat else data

    def call(self, g: Graph, instruction: DotInstruction, name: str, data: Any) -> Any:
        """Return a call of the product with packed weights, in tiles if possible."""
        tiled = tile_function.divide_into_tiles(self.sums, instruction)
        if tiled is None:
            packed_weights = dot_product_function.pack_weights(instruction, self.weights)
            function = dot_product_function.build_dot_function(instruction, self.sums)
        else:
            instruction = tiled.instruction.numbers
            packed_weights = tile_function.pack_weights(tiled, self.weights)
            function = tile_function.build_function(tiled, name.partition("_")[2])
        result = relax.TensorType(self.sums.result, instruction.sums)
        return g.call_function(name, function, [data, relax.const(packed_weights)], result)


# Takes a call, its weights and the instruction.
Layout = Callable[[Any, Any, DotInstruction], PaddedSums]


def check_weights(call: Any, instruction: DotInstruction, g: Graph) -> None:
    """Raise Leave unless weights are constant and fill most of the last vector of outputs."""
    weights = call.args[1]
    if not g.is_constant(weights) or weights.ty.ndim < 2:
        raise Leave("the weights are computed, or a vector")
    if not is_worth_padding(int(call.ty.shape[-1]), instruction.lanes):
        raise Leave("the outputs fill too small a part of a vector")


def check_rows(call: Any) -> None:
    """Raise Leave unless the call multiplies rows by a single matrix."""
    if call.args[1].ty.ndim != 2 or call.args[0].ty.ndim < 2:
        raise Leave("the operator does not multiply rows with a matrix")


def describe_row_product(call: Any, weights: Any, instruction: DotInstruction) -> PaddedSums:
    """Describe rows times a matrix, or a stack of matrices, as a product of padded data."""
    sizes, stacked = sizes_of(call.args[0]), weights.ndim == 3
    padding = -sizes[-1] % instruction.terms
    margins = *[0] * (2 * len(sizes) - 1), padding
    padded_weights = np.pad(weights, [*[(0, 0)] * (weights.ndim - 2), (0, padding), (0, 0)])
    read = *(f"vi{axis}" for axis in range(len(sizes) - 1)), instruction.input_index
    kernel = sizes[:1] if stacked else ()
    data = _add_margins(sizes, margins)
    sums = Sums(data, sizes_of(call), data[-1], read, kernel, stacked, (data[-1], 0))
    return PaddedSums(margins, padded_weights, sums)


def describe_channel_sums(call: Any, weights: Any, instruction: DotInstruction) -> PaddedSums:
    """Describe a convolution as sums over channels, contiguous at each window position."""
    top, left, bottom, right = map(int, call.attrs.padding)
    margins = 0, 0, top, bottom, left, right, 0, 0
    data = _add_margins(sizes_of(call.args[0]), margins)
    down, across, row_step, column_step = _strides_and_dilation(call)
    read = (
        "vi0",
        f"vi1 * {down} + vr0 * {row_step}",
        f"vi2 * {across} + vr1 * {column_step}",
        instruction.input_index,
    )
    window, (_, _, wide, inputs) = weights.shape[:2], data
    strides = (across * inputs, row_step * wide * inputs) if 1 in (column_step, window[1]) else None
    sums = Sums(data, sizes_of(call), inputs, read, window, strides=strides)
    return PaddedSums(margins, weights, sums)


def describe_window_row_sums(call: Any, weights: Any, instruction: DotInstruction) -> PaddedSums:
    """Describe a convolution of few channels, summed along whole rows of the window.

    A read may extend beyond the window's row, where weights are zero.
    """
    high, wide, channels, outputs = weights.shape
    inputs = wide * channels
    padding = -inputs % instruction.terms
    padded_weights = np.pad(weights.reshape(high, inputs, outputs), ((0, 0), (0, padding), (0, 0)))
    top, left, bottom, right = map(int, call.attrs.padding)
    margins = 0, 0, top, bottom, left, right + -(-padding // channels), 0, 0
    batch, height, *row = _add_margins(sizes_of(call.args[0]), margins)
    down, across, row_step, _ = _strides_and_dilation(call)
    read = "vi0", f"vi1 * {down} + vr0 * {row_step}", f"vi2 * {across * channels} + {instruction.input_index}"
    sums = Sums((batch, height, prod(row)), sizes_of(call), inputs + padding, read, (high,))
    return PaddedSums(margins, padded_weights, sums)


def describe_channels_first_sums(call: Any, weights: Any, instruction: DotInstruction) -> PaddedSums:
    """Describe a channels-first convolution of few channels, summed along image rows."""
    high, wide, channels, _ = weights.shape
    padding = -wide % instruction.terms
    padded_weights = np.pad(weights.transpose(2, 0, 1, 3), ((0, 0), (0, 0), (0, padding), (0, 0)))
    top, left, bottom, right = map(int, call.attrs.padding)
    margins = 0, 0, 0, 0, top, bottom, left, right + padding
    batch, height, width, _ = sizes_of(call.args[0])
    data = _add_margins((batch, channels, height, width), margins)
    down, across, row_step, _ = _strides_and_dilation(call)
    read = "vi0", "vr0", f"vi1 * {down} + vr1 * {row_step}", f"vi2 * {across} + {instruction.input_index}"
    sums = Sums(data, sizes_of(call), wide + padding, read, (channels, high))
    return PaddedSums(margins, padded_weights, sums)


def _strides_and_dilation(call: Any) -> tuple[int, ...]:
    return tuple(map(int, (*call.attrs.strides, *call.attrs.dilation)))


def _add_margins(sizes: tuple[int, ...], padding: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip(sizes, padding[::2], padding[1::2], strict=True)))
