"""Transposes that undo each other, with reshapes between them.

Tokens become images for a convolution, channels first, and channels go last again for the vectors: two
transposes with a reshape between them, and not a number has moved. A reshape says the same, and is free.
"""

from collections.abc import Sequence
from typing import Any

from tvm import relax

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import known, permutation, sizes_of
from graphc.core.reporting_pass import Leave

_TRANSPOSE, _RESHAPE = "relax.permute_dims", "relax.reshape"
Piece = tuple[tuple[int, ...], int]  # of an axis: its place in memory among the pieces, and its size
Axes = list[list[Piece]]  # each as the pieces that it consists of


class CancelTransposes(Pass[Any]):
    """Writes transposes and reshapes that leave all numbers in their order as one reshape."""

    name, match = "layout.cancel_transposes", (_TRANSPOSE,)
    dtype = ""
    after = ("layout.fold_channel_shuffles",)

    def check(self, call: Any, g: Graph) -> Any:
        """The value that all of it is a reshape of."""
        chain, transposes, found = [call], 1, None
        while True:
            source = chain[-1].args[0]
            if transposes > 1 and _in_order(source, chain):
                found = source
            producer = g.producer(source, _TRANSPOSE, _RESHAPE)
            if producer is None or not known(producer):
                break
            chain.append(producer)
            transposes += operator_name(producer) == _TRANSPOSE
        if found is None:
            raise Leave("no transpose before it undoes it")
        return found

    def rewrite(self, call: Any, facts: Any, g: Graph) -> Any:
        return facts if sizes_of(facts) == sizes_of(call) else relax.op.reshape(facts, call.ty.shape)


def _in_order(source: Any, chain: Sequence[Any]) -> bool:
    """True if the calls, the last first, leave the source's numbers in their order."""
    axes: Axes = [[((at,), size)] for at, size in enumerate(sizes_of(source))]
    for call in reversed(chain):
        if operator_name(call) == _TRANSPOSE:
            axes = [axes[axis] for axis in permutation(call)]
        elif (grouped := _regrouped(axes, sizes_of(call))) is not None:
            axes = grouped
        else:
            return False
    places = [place for axis in axes for place, size in axis if size > 1]
    return places == sorted(places)


def _regrouped(axes: Axes, sizes: Sequence[int]) -> Axes | None:
    """The same pieces in axes of other sizes; None where a piece would be in two that cannot share it."""
    pieces = [piece for axis in axes for piece in axis if piece[1] > 1]
    grouped: Axes = []
    for size in sizes:
        group: list[Piece] = []
        while size > 1:
            place, many = pieces.pop(0)
            if many > size and many % size == 0:
                pieces.insert(0, ((*place, 1), many // size))
                place, many = (*place, 0), size
            if size % many:
                return None
            group.append((place, many))
            size //= many
        grouped.append(group)
    return grouped
