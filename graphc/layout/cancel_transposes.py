"""Replace a chain of transposes and reshapes that keeps the memory order by one reshape.

A vision transformer, for example, transposes tokens to a channels-first image, and a layout
change then transposes the image back to channels-last. A reshape alone costs nothing.
"""

from collections.abc import Sequence
from typing import Any

from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import has_known_sizes, permutation, sizes_of

_TRANSPOSE, _RESHAPE = "relax.permute_dims", "relax.reshape"
Piece = tuple[tuple[int, ...], int]  # part of an axis: its path in memory order, and its size
Axes = list[list[Piece]]  # each axis as a list of its parts


class CancelTransposes(Pass[Any]):
    """Replaces transposes and reshapes that together keep the memory order by a reshape.

    A chain ends in a transpose and has two of them. With `joins_reshapes`, one transpose or
    two reshapes are enough: on GPUs each would be a kernel.
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
