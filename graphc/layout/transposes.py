"""Cancel transposes, move them after element-wise operators, and transpose by tiles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import (
    ELEMENTWISE,
    OPAQUE,
    has_known_sizes,
    parse_tvmscript,
    permutation,
    sizes_of,
)

_TRANSPOSE, _RESHAPE = "relax.permute_dims", "relax.reshape"
Piece = tuple[tuple[int, ...], int]  # part of an axis: its path in memory order, and its size
Axes = list[list[Piece]]  # each axis as a list of its parts
_TRANSPOSE = "relax.permute_dims"
TILE = 16  # float32 elements in a cache line


class CancelTransposes(Pass[Any]):
    """Replaces transposes and reshapes that together keep the memory order by a reshape.

    A vision transformer, for example, transposes tokens to a channels-first image, and a
    layout change then transposes the image back to channels-last. A reshape alone costs
    nothing. A chain ends in a transpose and has two of them. With `joins_reshapes`, one
    transpose or two reshapes are enough: on GPUs each would be a kernel.
    """

    name, match = "cancel_transposes", (_TRANSPOSE, _RESHAPE)
    dtype = ""
    after = ("fold_channel_shuffles",)

    def __init__(self, joins_reshapes: bool = False) -> None:
        super().__init__()
        self.joins_reshapes = joins_reshapes

    def check(self, call: Any, g: Graph) -> Any:
        """Return the first value in the chain from which one reshape gives the result."""
        is_transpose = operator_name(call) == _TRANSPOSE
        if not is_transpose and not self.joins_reshapes:
            raise Leave
        chain, transposes, reshaped = [call], int(is_transpose), None
        while True:
            source = chain[-1].args[0]
            is_long = len(chain) + is_transpose > 1 if self.joins_reshapes else transposes > 1
            if is_long and _keeps_order(source, chain):
                reshaped = source
            producer = g.producer(source, _TRANSPOSE, _RESHAPE)
            if producer is None or not has_known_sizes(producer):
                break
            chain.append(producer)
            transposes += operator_name(producer) == _TRANSPOSE
        if reshaped is None:
            raise Leave(*["no earlier transpose cancels this one"] * is_transpose)
        return reshaped

    def rewrite(self, call: Any, facts: Any, g: Graph) -> Any:
        return facts if sizes_of(facts) == sizes_of(call) else relax.op.reshape(facts, call.ty.shape)


def _keeps_order(source: Any, chain: Sequence[Any]) -> bool:
    """Return whether the calls `chain` (last call first) keep the order in memory."""
    axes: Axes = [[((number,), size)] for number, size in enumerate(sizes_of(source))]
    for call in reversed(chain):
        if operator_name(call) == _TRANSPOSE:
            axes = [axes[axis] for axis in permutation(call)]
            continue
        pieces = [piece for axis in axes for piece in axis if piece[1] > 1]
        axes = []
        for size in sizes_of(call):
            axes.append([])
            while size > 1:
                place, count = pieces.pop(0)
                if count > size and count % size == 0:
                    pieces.insert(0, ((*place, 1), count // size))
                    place, count = (*place, 0), size
                if size % count:
                    return False  # a piece would span two axes
                axes[-1].append((place, count))
                size //= count
    places = [place for axis in axes for place, size in axis if size > 1]
    return places == sorted(places)


@dataclass(frozen=True)
class TransposedOperands:
    """The operands of an operator before they were transposed, and the axes of the transposes."""

    values: list[Any]
    axes: tuple[int, ...]


class MoveTransposesAfterElementwise(Pass[TransposedOperands]):
    """Moves the transposes of an element-wise operator's operands to its result.

    A transpose further on may cancel them. A residual sum of two images that were
    transposed alike, for example, adds the images.
    """

    name, match = "move_transposes_after_elementwise", ELEMENTWISE
    forward = True  # whole chains of operators move

    def check(self, call: Any, g: Graph) -> TransposedOperands:
        transposes = [g.producer(value, _TRANSPOSE) for value in call.args]
        axes = next((permutation(transpose) for transpose in transposes if transpose is not None), None)
        if axes is None:
            raise Leave
        values = []
        for value, transpose in zip(call.args, transposes, strict=True):
            if transpose is not None and permutation(transpose) == axes:
                values.append(transpose.args[0])
            elif not isinstance(value.ty, relax.TensorType) or not value.ty.ndim:
                values.append(value)  # a single number
            elif g.is_constant(value) and value.ty.ndim <= len(axes):
                array = g.array(value)
                array = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
                values.append(g.constant(np.ascontiguousarray(array.transpose(np.argsort(axes)))))
            else:
                raise Leave("an operand is not transposed like the other one")
        return TransposedOperands(values, axes)

    def rewrite(self, call: Any, facts: TransposedOperands, g: Graph) -> Any:
        return relax.op.permute_dims(relax.Call(call.op, facts.values, call.attrs), list(facts.axes))


@dataclass(frozen=True)
class Permutation:
    """Order of the source's axes, and the axis of the result that was the source's last."""

    axes: tuple[int, ...]
    across: int


class TileTransposes(Pass[Permutation]):
    """Transposes the last axis in tiles of 16 x 16, if the sizes are multiples of 16.

    Reading column by column loads one cache line per element, and the lines of a column
    compete for few cache sets. A tile of 16 x 16 elements reads 16 lines and uses each
    completely.
    """

    name, match = "tile_transposes", ("relax.permute_dims",)
    after = ("fuse_transposes_into_batched_matmul",)

    def check(self, call: Any, g: Graph) -> Permutation:
        sizes, last = sizes_of(call), call.ty.ndim - 1
        axes = permutation(call)
        across = axes.index(last)
        if across == last:
            raise Leave("the transpose keeps the last axis in place")
        if sizes[across] % TILE or sizes[last] % TILE:
            raise Leave(f"the sizes of the swapped axes are not multiples of {TILE}")
        return Permutation(axes, across)

    def rewrite(self, call: Any, facts: Permutation, g: Graph) -> Any:
        sizes, axes, across = sizes_of(call), facts.axes, facts.across
        last = len(sizes) - 1
        loops, values = ([f"{kind}{axis}" for axis in range(len(sizes))] for kind in "av")
        extents, targets, regions = [], [], []  # by axis of the result
        for axis, size in enumerate(sizes):
            is_tiled = axis in (across, last)
            extents.append(str(size // TILE if is_tiled else size))
            start = f"v{axis} * {TILE}" if is_tiled else f"v{axis}"
            regions.append(f"{start}:{start} + {TILE}" if is_tiled else start)
            targets.append(f"{start} + {'j' if axis == last else 'i'}" if is_tiled else start)
        lists: tuple[Sequence[Any], ...] = (sizes, targets, regions)
        source_sizes, places, source_regions = (
            [value for _, value in sorted(zip(axes, by_axis, strict=True))] for by_axis in lists
        )
        # A block per tile, and a dummy last loop for MetaSchedule.
        function = parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(x: T.Buffer({tuple(source_sizes)}, "float32"), y: T.Buffer({sizes}, "float32")) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OPAQUE}}})
    for {", ".join(loops)}, once in T.grid({", ".join(extents)}, 1):
        with T.sblock("tile"):
            {", ".join(values)}, v_once = T.axis.remap(
                "{"S" * (len(sizes) + 1)}", [{", ".join(loops)}, once])
            T.reads(x[{", ".join(source_regions)}])
            T.writes(y[{", ".join(regions)}])
            for i in T.unroll({TILE}):
                for j in T.vectorized({TILE}):
                    y[{", ".join(targets)}] = x[{", ".join(places)}]
""")
        return g.call_function("transpose_tiles", function, [call.args[0]], call.ty)
