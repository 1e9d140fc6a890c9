"""Concatenations along the last axis as copies of their parts, with what follows computed on the way.

TVM asks for every number which part it comes from, which leaves no vectors. Here each part has a loop of its
own in a row of the result. What was joined before is read where it was, so that chains of concatenations, as
of dense blocks, copy nothing twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import OUT_ELEMENTWISE_FUSABLE, sizes_of
from graphc.core.reporting_pass import Leave
from graphc.fold.channel_affine import OPERATORS, ChannelAffine, affine_chain, nothing
from graphc.layout import followed_concat as found
from graphc.layout.concat_function import ConcatShape, concat_function

# Operators of computed values, which TVM fuses with a concatenation, and with what is before that.
_FUSED = (*OPERATORS, *found.LIMITS)


@dataclass(frozen=True)
class Copies:
    """What is copied side by side, by which factors and summands, and the sizes of all."""

    parts: tuple[Any, ...]
    vectors: tuple[Any, ...]
    shape: ConcatShape


class ConcatToCopies(Pass[Copies]):
    """Copies the parts of concatenations along the last axis, and applies constants behind them meanwhile."""

    name, match = "layout.concat_to_copies", (found.CONCAT, *_FUSED)
    after = ("fold.batch_norm", "conv.keep_joined_groups_apart")

    def check(self, call: Any, g: Graph) -> Copies:
        chain = found.followed_concat(call, g)
        if chain is None:
            raise Leave("it does not join rows") if operator_name(call) == found.CONCAT else Leave
        readers = found.readers_of_result(g.variable, g)
        if not readers:
            raise Leave
        if any(reader is not None and operator_name(reader) in _FUSED for reader in readers):
            raise Leave("TVM computes it where what follows reads it")
        sources = [_source(part, g) for part in found.parts_of(chain.concat, g)]
        sizes = tuple(sizes_of(value)[-1] for value, _ in sources)
        if max(sizes) < self.lanes:
            raise Leave("no part of it fills a vector")
        affine = _joined([own for _, own in sources], sizes, chain.affine)
        used = affine.is_scaled(), affine.is_shifted()
        shape = ConcatShape(sizes_of(call)[:-1], sizes, *used, chain.limits, self.lanes)
        vectors = (affine.scale,) * used[0] + (affine.shift,) * used[1]
        return Copies(tuple(value for value, _ in sources), vectors, shape)

    def rewrite(self, call: Any, facts: Copies, g: Graph) -> Any:
        constants = (relax.const(vector.astype("float32")) for vector in facts.vectors)
        arguments = [*facts.parts, *constants]
        return g.call_function("concatenate", concat_function(facts.shape), arguments, call.ty)


def _source(part: Any, g: Graph) -> tuple[Any, ChannelAffine]:
    """What a part is computed of by factors and summands which TVM could fuse with nothing before them.

    Others would compute them once more for each concatenation that reads the part.
    """
    producer, same = g.producer(part), nothing(part.ty.ndim)
    affine, links = affine_chain(producer, g) if producer is not None else (same, [])
    source = g.producer(links[0].value, "relax.call_tir") if links else None
    if source is None or not set(affine.channels()) <= {part.ty.ndim - 1}:
        return part, same
    pattern = (g.tensor_function(source).attrs or {}).get("op_pattern")
    is_for_concats = isinstance(part, relax.DataflowVar) and all(map(found.joins_rows, g.readers(part)))
    return (
        (part, same) if pattern == OUT_ELEMENTWISE_FUSABLE or not is_for_concats else (links[0].value, affine)
    )


def _joined(parts: Sequence[ChannelAffine], sizes: Sequence[int], after: ChannelAffine) -> ChannelAffine:
    """By place in a row: what each part is multiplied by and what is added, then the same of the row."""
    rows = [
        np.concatenate([np.resize(values, size) for values, size in zip(each, sizes, strict=True)])
        for each in ([part.scale for part in parts], [part.shift for part in parts])
    ]
    scale, shift = after.scale.reshape(-1), after.shift.reshape(-1)
    return ChannelAffine(rows[0] * scale, rows[1] * scale + shift)
